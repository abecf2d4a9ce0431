"""Compares mixers with a delta rule with layers of transformers and rwkv7-hf.
"""

import flax.linen as nn
import numpy as np
import pytest

from lra.models import deltanet, deltaproduct, gated_deltanet, kda, rwkv7
from tests.helpers import mixer_oracle, peer

torch = peer.torch
X, MASK = mixer_oracle.ragged(70, 41, width=16)  # in several chunks
ONE_WAY = {'num_heads': 2, 'direction': 'causal'}


def load(model):
  peer.load('transformers', 'transformers')
  return (peer.load(f'transformers.models.{model}.modeling_{model}',
                    'transformers'),
          peer.load(f'transformers.models.{model}.configuration_{model}',
                    'transformers'))


def taps(params, *names):
  """Joins the convolution kernels of `names` on the channel axis, [C, 1, 4]."""
  return torch.cat([params[f'{name}_convolution']['kernel'].T
                    for name in names])[:, None]


QKV = ('query', 'key', 'value')


@pytest.mark.parametrize('negative', [False, True])
def test_gated_deltanet(check, negative):
  """Compares Gated DeltaNet with OLMo Hybrid's layer, computed in chunks."""
  model, configuration = load('olmo_hybrid')
  layer = model.OlmoHybridGatedDeltaNet(configuration.OlmoHybridConfig(
      hidden_size=16, linear_num_key_heads=2, linear_num_value_heads=2,
      linear_key_head_dim=6, linear_value_head_dim=12, num_hidden_layers=2,
      num_attention_heads=2, linear_allow_neg_eigval=negative,
      layer_types=['linear_attention', 'full_attention']), 0)

  def theirs(params, x, mask):
    return peer.apply(layer, 'gated_deltanet', 'transformers', params, x,
                      attention_mask=mask)

  check('transformers',
        gated_deltanet.Mixer(negative_eigenvalues=negative, **ONE_WAY), theirs,
        X, MASK)


def test_kda(check):
  """Compares KDA with Kimi Linear's layer, computed in chunks."""
  model, configuration = load('kimi_linear')
  layer = model.KimiLinearDeltaAttention(configuration.KimiLinearConfig(
      hidden_size=16, linear_num_heads=2, linear_head_dim=8,
      num_hidden_layers=1, num_attention_heads=2,
      layer_types=['linear_attention']), 0)

  def theirs(params, x, mask):
    parts = {short: peer.linear(params[name]) for short, name in (
        ('q_proj', 'query'), ('k_proj', 'key'), ('v_proj', 'value'),
        ('b_proj', 'beta'), ('forget_gate.f_a_proj', 'decay_down'),
        ('forget_gate.f_b_proj', 'decay_up'), ('g_a_proj', 'gate_down'),
        ('g_b_proj', 'gate_up'))}
    return peer.call(layer, {
        **parts, 'o_proj': peer.linear(params['out'], ins=2),
        'conv1d': {'weight': taps(params, *QKV)},
        'o_norm': {'weight': params['norm']['scale']},
        'forget_gate': {'A_log': params['log_rate'].reshape(1, 1, -1, 1),
                        'dt_bias': params['dt_bias'].reshape(-1)}},
        x, attention_mask=mask)

  check('transformers', kda.Mixer(**ONE_WAY), theirs, X, MASK)


def rule_around(params, x, mask, steps, log_decay, gate):
  """Computes a mixer with OLMo Hybrid's delta rule, token by token.

  The projections, convolutions and norm around the rule are plain PyTorch.
  """
  model, _ = load('olmo_hybrid')
  x = x * mask[..., None]

  def heads(name, steps=1):
    y = torch.einsum('bld,dhw->blhw', x, params[name]['kernel'])
    y = torch.nn.functional.pad(y.flatten(2).mT, (3, 0))
    y = torch.nn.functional.silu(torch.nn.functional.conv1d(
        y, taps(params, name), groups=y.shape[1])).mT
    return y.reshape(*y.shape[:2], steps, 2, -1)

  def last(y):
    """Puts `y` at the last step of each token and zeros at the others."""
    return torch.cat([torch.zeros_like(y)] * (steps - 1) + [y], 2).flatten(1, 2)

  beta = 2 * torch.einsum(
      'bld,dhw->blh', x, params['beta']['kernel']).sigmoid()
  beta = beta.reshape(*beta.shape[:2] + (steps, 2)) * mask[..., None, None]
  first = last(log_decay[:, :, None]).reshape(
      *log_decay.shape[:2], steps, 2).flip(2).flatten(1, 2)
  o, _ = model.torch_recurrent_gated_delta_rule(
      last(heads('query')), heads('key', steps).flatten(1, 2),
      heads('value', steps).flatten(1, 2), g=first, beta=beta.flatten(1, 2),
      initial_state=None, output_final_state=False,
      use_qk_l2norm_in_kernel=True)
  o = o[:, steps - 1::steps]
  o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + 1e-5)
  return torch.einsum('blhe,hed->bld', o * params['norm']['scale'] * gate,
                      params['out']['kernel'])


def test_deltanet(check):
  def theirs(params, x, mask):
    return rule_around(params, x, mask, 1, torch.zeros(*mask.shape, 2), 1)

  check('transformers',
        deltanet.Mixer(negative_eigenvalues=True, **ONE_WAY), theirs, X, MASK)


def test_deltaproduct(check):
  def theirs(params, x, mask):
    step = torch.einsum('bld,dhw->blh', x, params['decay']['kernel'])
    step = torch.nn.functional.softplus(step + params['dt_bias'])
    gate = torch.einsum('bld,dhw->blhw', x, params['gate']['kernel'])
    return rule_around(
        params, x, mask, 3, -params['log_rate'].exp() * step,
        torch.nn.functional.silu(gate))

  check('transformers', deltaproduct.Mixer(householder=3, **ONE_WAY), theirs,
        X, MASK)


def time_mix(params, x, mask, layer, first):
  """Applies rwkv7-hf's layer to our parameters; returns (outputs, values)."""
  package = peer.load('rwkv7_hf.modeling_rwkv7', 'rwkv7-hf')
  config = peer.load('rwkv7_hf.configuration_rwkv7', 'rwkv7-hf')
  module = package.RWKV7TimeMix(config.RWKV7Config(
      hidden_size=16, head_dim=8, num_heads=2, num_hidden_layers=2,
      decay_low_rank_dim=32, gate_low_rank_dim=32, a_low_rank_dim=32,
      v_low_rank_dim=32), layer)
  out, _, _, values = peer.apply(
      module, 'rwkv7', 'rwkv7-hf', params, x, torch.zeros(len(x), 2, 8, 8),
      torch.zeros(len(x), 16), first, mask)
  return out, values


def test_rwkv7(check):
  check('rwkv7-hf', rwkv7.Mixer(**ONE_WAY),
        lambda params, x, mask: time_mix(params, x, mask, 0, None)[0], X, MASK)


class TwoLayers(nn.Module):
  """Two RWKV-7 layers; the second mixes in the values of the first."""

  @nn.compact
  def __call__(self, x, mask, *, train):
    first, second = (
        rwkv7.Mixer(layer=i, num_layers=2, name=f'layer_{i}', **ONE_WAY)
        for i in (0, 1))
    y, values = first(x, mask, train=train, share=True)
    return second(y, mask, train=train, values=values)


def test_rwkv7_in_two_layers():
  def theirs(params, x, mask):
    y, values = time_mix(params['layer_0'], x, mask, 0, None)
    return time_mix(params['layer_1'], y, mask, 1, values)[0]

  variables = mixer_oracle.init(TwoLayers(), X, MASK)
  found = peer.compare(TwoLayers(), theirs, variables, X, MASK, 1e-5)
  assert np.isfinite(found).all()
