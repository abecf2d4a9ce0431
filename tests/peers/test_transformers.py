"""Compares mixers with the attention of models in the package transformers.

If only our output projection has a bias, the test adds it.
"""

import numpy as np
import pytest

from lra.models import (
  bigbird,
  differential,
  fnet,
  lightning,
  longformer,
  mamba2,
  mla,
  nystromformer,
  transformer_rotary,
  transformer_t5,
)
from tests.helpers import mixer_oracle, peer

torch = peer.torch
RAGGED = mixer_oracle.ragged(24, 17, width=16)
FULL = mixer_oracle.ragged(24, 24, width=16)


def load(model):
  peer.load('transformers', 'transformers')
  return peer.load(f'transformers.models.{model}.modeling_{model}',
                   'transformers')


def bias(mask):
  """Returns the term [B, 1, 1, L] that masks the logits of padded keys."""
  return torch.zeros(mask.shape).masked_fill(~mask, -1e9)[:, None, None]


def turns(package, config, x):
  """Returns cosines and sines of Llama's rotary positions."""
  return package.LlamaRotaryEmbedding(config)(
      x, torch.arange(x.shape[1])[None])


def test_rotary_llama(check):
  """Compares rotary attention; both rotate the channels i and i + Dh / 2."""
  package = load('llama')
  config = package.LlamaConfig(
      hidden_size=16, num_attention_heads=2, attention_bias=True,
      attn_implementation='eager')
  module = package.LlamaAttention(config, 0)

  def theirs(params, x, mask):
    return peer.call(module, {
        **{f'{name[0]}_proj': peer.linear(params[name])
           for name in ('query', 'key', 'value')},
        'o_proj': peer.linear(params['out'], 2)},
                     x, turns(package, config, x), bias(mask))[0]

  check('transformers', transformer_rotary.Mixer(num_heads=2, qkv_width=16),
        theirs, *RAGGED)


def test_latent_deepseek_v3(check):
  package = load('deepseek_v3')
  config = package.DeepseekV3Config(
      hidden_size=16, num_attention_heads=2, num_key_value_heads=2,
      q_lora_rank=6, kv_lora_rank=5, qk_nope_head_dim=8, v_head_dim=8,
      qk_rope_head_dim=4, rope_interleave=False, attn_implementation='eager')
  module = package.DeepseekV3Attention(config, 0)
  rotary = package.DeepseekV3RotaryEmbedding(config)

  def joined(params, *names):
    return {'kernel': torch.cat([params[name]['kernel'] for name in names], -1)}

  def theirs(params, x, mask):
    out = peer.linear(params['out'], 2)
    shared = {'kernel': params['key_rotary']['kernel'][:, 0]}
    parts = {
        'q_a_proj': peer.linear(params['query_down']),
        'q_a_layernorm': {'weight': params['query_norm']['scale']},
        'q_b_proj': peer.linear(joined(params, 'query_up', 'query_rotary')),
        'kv_a_proj_with_mqa': peer.linear(joined(
            {**params, 'shared': shared}, 'kv_down', 'shared')),
        'kv_a_layernorm': {'weight': params['kv_norm']['scale']},
        'kv_b_proj': peer.linear(joined(params, 'key_up', 'value_up')),
        'o_proj': {'weight': out['weight']}}
    positions = rotary(x, torch.arange(x.shape[1])[None])
    return out['bias'] + peer.call(
        module, parts, x, positions, bias(mask))[0]

  check('transformers', mla.Mixer(
      num_heads=2, qkv_width=16, query_rank=6, kv_rank=5, rotary_width=4),
        theirs, *RAGGED)


@pytest.mark.parametrize('rotary', [False, True])
def test_differential_diffllama(check, rotary):
  """DiffLlama subtracts head p + H / 2 from head p, ours 2 p + 1 from 2 p.

  DiffLlama's norm has no scale, so the output projection is multiplied by ours.
  """
  package = load('diffllama')
  config = package.DiffLlamaConfig(
      hidden_size=16, num_attention_heads=4, num_key_value_heads=4,
      attention_bias=True, attn_implementation='eager', rms_norm_eps=1e-5)
  module = package.DiffLlamaAttention(config, 2)

  def apart(dense):
    return {name: torch.cat([p[..., 0::2, :], p[..., 1::2, :]], -2)
            for name, p in dense.items()}

  def theirs(params, x, mask):
    scale = params['norm']['scale']
    out = {**params['out'], 'kernel': params['out']['kernel']
           * scale.reshape(2, 4).repeat(2, 1)[..., None]}
    lambdas = {f'lambda_{name[0]}{i + 1}': params[f'lambda_{name}'][i]
               for name in ('query', 'key') for i in range(2)}
    turned = package.DiffLlamaRotaryEmbedding(config)(
        x, torch.arange(24)[None]) if rotary else (
            torch.ones(1, 24, 4), torch.zeros(1, 24, 4))
    return peer.call(module, {
        '': lambdas, 'o_proj': peer.linear(out, 2),
        **{f'{name[0]}_proj': peer.linear(apart(params[name]))
           for name in ('query', 'key', 'value')}}, x, turned, bias(mask))[0]

  check('transformers', differential.Mixer(
      num_heads=4, qkv_width=16, layer=2, rotary=rotary), theirs, *RAGGED)


def test_t5(check):
  """T5 does not divide logits by sqrt(Dh), so its query weights are divided."""
  package = load('t5')
  module = package.T5Attention(package.T5Config(
      d_model=16, d_kv=8, num_heads=2, attn_implementation='eager',
      dropout_rate=0.0), has_relative_attention_bias=True)

  def theirs(params, x, mask):
    out = peer.linear(params['out'], 2)
    return out['bias'] + peer.call(module, {
        'q': {'weight': peer.linear(params['query'])['weight'] * 8**-0.5},
        'k': peer.linear(params['key']), 'v': peer.linear(params['value']),
        'o': {'weight': out['weight']},
        'relative_attention_bias': {'weight': params['relative_bias']}},
                                   x, mask=bias(mask))[0]

  check('transformers',
        transformer_t5.Mixer(num_heads=2, qkv_width=16, qkv_bias=False),
        theirs, *mixer_oracle.ragged(150, 97, width=16))  # 2 blocks of queries


@pytest.mark.parametrize('buckets,farthest', [(32, 128), (8, 12), (64, 500)])
def test_buckets_of_t5(buckets, farthest):
  distance = np.arange(-1000, 1001)
  want = load('t5').T5Attention._relative_position_bucket(
      torch.tensor(distance), num_buckets=buckets, max_distance=farthest)
  np.testing.assert_array_equal(
      transformer_t5.buckets(distance, buckets, farthest), want)


@pytest.mark.parametrize('layer', [0, 1])
def test_lightning_minimax(check, layer):
  package = load('minimax')
  module = package.MiniMaxLightningAttention(package.MiniMaxConfig(
      hidden_size=16, num_attention_heads=2, num_key_value_heads=2,
      num_hidden_layers=3, block_size=5, layer_types=['linear_attention'] * 3),
      layer)

  def theirs(params, x, mask):
    out = peer.linear(params['out'], 2)
    qkv = torch.cat([params[name]['kernel']
                     for name in ('query', 'key', 'value')], -1)
    return out['bias'] + peer.call(module, {
        'qkv_proj': peer.linear({'kernel': qkv}),
        'norm': {'weight': params['norm']['scale'].reshape(-1)},
        'output_gate': peer.linear(params['gate']),
        'out_proj': {'weight': out['weight']}}, x, None, mask.float())[0]

  check('transformers', lightning.Mixer(
      num_heads=2, qkv_width=16, decay_by_depth=True, gate=True, layer=layer,
      num_layers=3, qkv_bias=False), theirs, *RAGGED)


def test_longformer(check):
  """Longformer's bias of global keys is zero; the softmax would cancel it."""
  package = load('longformer')
  module = package.LongformerSelfAttention(package.LongformerConfig(
      hidden_size=16, num_attention_heads=2, attention_window=[4],
      attention_probs_dropout_prob=0.0), 0)

  def theirs(params, x, mask):
    own = {'key_global': {'kernel': params['global_key'],
                          'bias': torch.zeros(2, 8)},
           'value_global': {'kernel': params['global_value'],
                            'bias': params['global_value_bias']},
           'query_global': params['global_query']}
    is_global = torch.arange(24)[None].expand(mask.shape) < 2
    attention_mask = torch.where(mask, 0.0, -10000.0) + 10000 * is_global
    out = peer.call(
        module, {name: peer.linear(dense) for name, dense in {
            **own, **{name: params[name] for name in ('query', 'key', 'value')}
        }.items()}, x, attention_mask=attention_mask, is_index_masked=~mask,
        is_index_global_attn=is_global, is_global_attn=True)[0]
    return peer.merge(out.reshape(2, 24, 2, 8).transpose(1, 2), params['out'])

  check('transformers', longformer.Mixer(
      num_heads=2, qkv_width=16, window=4, num_global=2), theirs, *RAGGED)


def test_bigbird(check, monkeypatch):
  """The package gets our random blocks.

  Its last block is global, and ours is not, so that block is padding.
  """
  package = load('big_bird')
  module = package.BigBirdBlockSparseAttention(package.BigBirdConfig(
      hidden_size=16, num_attention_heads=2, num_random_blocks=2,
      block_size=3)).eval()
  mixer = bigbird.Mixer(
      num_heads=2, qkv_width=16, block_size=3, window_blocks=3,
      global_blocks=1, random_blocks=2)
  blocks = np.array(mixer.patterns(30)[0].random_blocks)[:, 1:-1]
  assert blocks.min() >= 0
  monkeypatch.setattr(module, '_bigbird_block_rand_mask_with_head',
                      lambda **_: list(blocks))

  def theirs(params, x, mask):
    kept, band, rows, columns = (
        package.BigBirdModel.create_masks_for_block_sparse_attn(
            mask.float(), 3))
    out = peer.call(
        module, {name: peer.linear(params[name])
                 for name in ('query', 'key', 'value')}, x, band_mask=band,
        from_mask=rows, to_mask=columns, from_blocked_mask=kept,
        to_blocked_mask=kept)[0]
    return peer.merge(out.reshape(2, 30, 2, 8).transpose(1, 2), params['out'])

  check('transformers', mixer, theirs,
        *mixer_oracle.ragged(27, 20, width=16, length=30))


def test_nystromformer(check):
  package = load('nystromformer')
  module = package.NystromformerSelfAttention(package.NystromformerConfig(
      hidden_size=16, num_attention_heads=2, num_landmarks=4,
      segment_means_seq_len=24, conv_kernel_size=5)).eval()

  def theirs(params, x, mask):
    out = peer.call(module, {
        'conv': {'weight': params['conv'].permute(1, 2, 0)[..., None]},
        **{name: peer.linear(params[name])
           for name in ('query', 'key', 'value')}}, x)[0]
    return peer.merge(out.reshape(2, 24, 2, 8).transpose(1, 2), params['out'])

  check('transformers', nystromformer.Mixer(
      num_heads=2, qkv_width=16, num_landmarks=4, conv_width=5,
      pinv_init='original'), theirs, *FULL)


def test_fnet(check):
  package = load('fnet')
  transform = package.FNetBasicFourierTransform(package.FNetConfig(
      hidden_size=16, use_tpu_fourier_optimizations=False))
  check('transformers', fnet.Mixer(orthonormal=False),
        lambda params, x, mask: transform(x)[0], *FULL)


@pytest.mark.parametrize('groups', [1, 2])
def test_mamba2(check, groups):
  """Compares the causal Mamba-2 with the package's plain PyTorch code."""
  package = load('mamba2')
  module = package.Mamba2Mixer(package.Mamba2Config(
      hidden_size=16, num_heads=4, head_dim=8, state_size=6, n_groups=groups,
      expand=2, conv_kernel=4, chunk_size=5, layer_norm_epsilon=1e-5,
      num_hidden_layers=1), 0).eval()

  def theirs(params, x, mask):
    return peer.apply(module, 'mamba2', 'transformers', params, x,
                      attention_mask=mask.float())

  check('transformers', mamba2.Mixer(
      num_heads=4, state_dim=6, groups=groups, direction='causal'),
        theirs, *RAGGED)
