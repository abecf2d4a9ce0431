"""Compares mixers with a delta rule with their recurrences, in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from lra import models
from tests.helpers import mixer_oracle
from tests.helpers import recurrent_oracle as parts
from tests.helpers.mixer_oracle import heads


def _mixer(xp, p, x, mask, direction, *, steps=1, log_decay=None, gate=1,
           negative_eigenvalues=False):
  """Computes a mixer of `lra.nn.delta_mixer`, step by step: [B, L, D].

  The log decay is [B, L, H] or [B, L, H, N]; the gate multiplies the normalised
  heads.
  """
  H = p['query']['kernel'].shape[1]
  beta = (1 + negative_eigenvalues) * parts.sigmoid(
      xp, heads(xp, x, p['beta']))[..., 0]
  if log_decay is None:
    log_decay = xp.zeros(x.shape[:2] + (H,))
  if log_decay.ndim == 3:
    log_decay = log_decay[..., None]

  def one_way(reverse):
    q, k, v = (
        parts.convolve(xp, y, p[f'{name}_convolution'], mask, reverse)
        if f'{name}_convolution' in p else parts.silu(xp, y)
        for name in ('query', 'key', 'value')
        for y in [heads(xp, x, p[name])])
    q, k = (y / xp.sqrt((y**2).sum(-1, keepdims=True) + 1e-6) for y in (q, k))

    def step(state, q, k, v, beta, log_decay):
      state = xp.exp(log_decay)[..., None] * state
      for n in range(steps):
        own = slice(n * H, (n + 1) * H)
        miss = v[:, own] - xp.einsum('bhn,bhne->bhe', k[:, own], state)
        state = state + xp.einsum(
            'bhn,bhe->bhne', k[:, own], beta[:, own, None] * miss)
      return state, xp.einsum('bhn,bhne->bhe', q, state) * q.shape[-1]**-0.5

    start = xp.zeros((len(x), H, q.shape[-1], v.shape[-1]))
    return parts.loop(xp, step, start, (q, k, v, beta, log_decay), mask,
                      reverse)

  o = parts.rms(xp, parts.both(direction, one_way), p['norm']['scale'])
  return xp.einsum('blhe,hed->bld', o * gate, p['out']['kernel'])


def _decay(xp, step, p):
  """Computes -e^A softplus(step + dt), [B, L, H] or [B, L, H, N] like `step`.
  """
  rate = xp.exp(p['log_rate'])
  step = step + p['dt_bias']
  return -(rate[:, None] if step.ndim == 4 else rate) * xp.logaddexp(
      step, xp.zeros_like(step))


def deltanet(xp, p, x, mask, direction='bidirectional',
             negative_eigenvalues=False, **_):
  return _mixer(xp, p, x, mask, direction,
                negative_eigenvalues=negative_eigenvalues)


def gated_deltanet(xp, p, x, mask, direction='bidirectional', householder=1,
                   forget=True, negative_eigenvalues=False):
  return _mixer(
      xp, p, x, mask, direction, steps=householder,
      log_decay=_decay(xp, heads(xp, x, p['decay'])[..., 0], p)
      if forget else None, gate=parts.silu(xp, heads(xp, x, p['gate'])),
      negative_eigenvalues=negative_eigenvalues)


def deltaproduct(*given, **options):
  return gated_deltanet(*given, **{
      'householder': 2, 'negative_eigenvalues': True, **options})


def kda(xp, p, x, mask, direction='bidirectional'):
  step, gate = (heads(xp, x @ p[f'{name}_down']['kernel'], p[f'{name}_up'])
                for name in ('decay', 'gate'))
  return _mixer(xp, p, x, mask, direction, log_decay=_decay(xp, step, p),
                gate=parts.sigmoid(xp, gate))


# The oracle and its options; the first options of each are the quick ones, but
# DeltaProduct, which compiles for long, tests Gated DeltaNet too.
CASES = {
    deltanet: [{}, {'direction': 'causal', 'negative_eigenvalues': True},
               {'conv_width': 0, 'key_width': 6, 'value_width': 10}],
    gated_deltanet: [{'direction': 'causal', 'negative_eigenvalues': True},
                     {}],
    deltaproduct: [{'direction': 'causal', 'householder': 3}, {},
                   {'forget': False, 'negative_eigenvalues': False,
                    'householder': 1}],
    kda: [{'direction': 'causal'}, {}]}


@pytest.mark.parametrize('oracle, options', [
    pytest.param(oracle, options, id=f'{oracle.__name__} {options}',
                 marks=pytest.mark.full if i or oracle is gated_deltanet
                 else ())
    for oracle, cases in CASES.items() for i, options in enumerate(cases)])
def test_equals_its_recurrence(oracle, options):
  x, mask = mixer_oracle.ragged(13, 9, 0, width=16)
  mask[0, 5] = False  # padding may be anywhere
  mixer_oracle.check(
      models.mixer(oracle.__name__)(num_heads=2, **options),
      lambda *arguments: oracle(*arguments, **options), x, mask)


@pytest.mark.parametrize('name', [
    'deltanet', *map(mixer_oracle.full, (
        'gated_deltanet', 'deltaproduct', 'kda'))])
def test_rounding_lets_no_state_grow(name):
  """Outputs of 16,384 equal tokens with beta = 2 are finite in bfloat16.

  Keys of 16 bits may be 0.2% longer than 1: each token would multiply the state
  by -1.008. Rounding the inverse of a chunk may do so too.
  """
  mixer = models.mixer(name)(
      num_heads=16, direction='causal', negative_eigenvalues=True,
      conv_width=0, dtype=jnp.bfloat16)
  x = np.random.default_rng(0).normal(size=(4, 1, 64)).astype('f')
  variables = mixer_oracle.init(mixer, x, np.ones((4, 1), bool))
  params = variables['params']
  solution = np.linalg.lstsq(x[:, 0], np.full(4, 40), rcond=None)[0]
  params['beta']['kernel'] = np.broadcast_to(
      solution[:, None, None].astype('f'), params['beta']['kernel'].shape)
  if 'log_rate' in params:
    params['log_rate'] -= 40  # no decay
  y = mixer_oracle.apply(mixer, variables, np.repeat(x, 2**14, 1),
                         np.ones((4, 2**14), bool))
  assert np.isfinite(y.astype('f')).all()
