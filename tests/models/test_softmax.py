"""Compares mixers of softmax attention with their equations in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import models
from lra.models import transformer, transformer_alibi, transformer_t5
from tests.helpers import mixer_oracle, sparse_oracle
from tests.helpers.mixer_oracle import full
from tests.helpers.mixer_oracle import transformer as _transformer

# Published: the slopes of eight heads are 1/2, 1/4 ... 1/256 (section 3).
SLOPES = {8: [2.0**-i for i in range(1, 9)], 2: [1 / 16, 1 / 256]}


def _rotary(xp, params, x, mask):
  return _transformer(xp, params, x, mask, mixer_oracle.turn)


def _turn_alternate(xp, x):
  """Rotates as the released code does, which pairs neighbouring channels.

  It rotates whole vectors of D channels, before they are split into heads.
  """
  B, L, H, Dh = x.shape
  D = H * Dh
  pairs = x.reshape(B, L, H, 2, Dh // 2).swapaxes(3, 4).reshape(B, L, D // 2, 2)
  theta = 10_000.0 ** (-2 * np.arange(D // 2) / D)
  theta[::2] = 0
  z = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(
      1j * np.outer(np.arange(L), theta))
  return xp.stack([z.real, z.imag], -1).reshape(x.shape)


def _alternate(xp, params, x, mask):
  return _transformer(xp, params, x, mask, _turn_alternate)


def _alibi(xp, params, x, mask):
  i = np.arange(x.shape[1])
  slopes = np.array(SLOPES[params['query']['kernel'].shape[1]])
  return _transformer(
      xp, params, x, mask, bias=-slopes[:, None, None] * abs(i[:, None] - i))


def _bucket(distance, num_buckets, max_distance):
  """Returns the bucket of one distance, as in the paper's code."""
  half = num_buckets // 2
  first = half if distance > 0 else 0
  distance = abs(distance)
  exact = half // 2
  if distance < exact:
    return first + distance
  grown = exact + int(math.log(distance / exact)
                      / math.log(max_distance / exact) * (half - exact))
  return first + min(grown, half - 1)


def _t5(xp, params, x, mask, *sizes):
  i = range(x.shape[1])
  hot = np.eye(sizes[0])[[[_bucket(b - a, *sizes) for b in i] for a in i]]
  bias = xp.einsum('lsk,kh->hls', hot, params['relative_bias'])
  return _transformer(xp, params, x, mask, bias=bias)


def _grouped(xp, params, x, mask):
  q, k, v = mixer_oracle.qkv(xp, x, params)
  heads, groups = q.shape[2], k.shape[2]
  own = [h * groups // heads for h in range(heads)]
  o = mixer_oracle.attention(
      xp, q, k[:, :, own], v[:, :, own], mask, q.shape[-1]**-0.5)
  return mixer_oracle.merge(xp, o, params['out'])


def _optimised(xp, params, x, mask):
  q, k = (mixer_oracle.heads(xp, x, params[n]) for n in ('query', 'key'))
  num_heads, width = q.shape[2], x.shape[2] // q.shape[2]
  v = xp.stack([x[..., i * width:(i + 1) * width]
                for i in range(num_heads)], 2)
  o = mixer_oracle.attention(xp, q, k, v, mask, q.shape[-1]**-0.5)
  return mixer_oracle.merge(xp, o, params['out'])


def _one_head(xp, params, x, v, mask):
  q = x @ params['query']['kernel'][:, 0] + params['query']['bias'][0]
  o = mixer_oracle.attention(xp, q[:, :, None], x[:, :, None], v[:, :, None],
                             mask, x.shape[-1]**-0.5)
  return o[:, :, 0] @ params['out']['kernel'][0] + params['out']['bias']


def _efficient(xp, params, x, mask):
  return _one_head(xp, params, x, x, mask)


def _super(xp, params, x, mask):
  align = params['alignment']  # kernel [L_in, L_out]: Wa transposed
  v = xp.einsum('ij,bjd->bid', align['kernel'].T, x * mask[..., None])
  return _one_head(xp, params, x, v + align['bias'][:, None], mask)


def _mla(xp, params, x, mask):
  """Computes equations 9-19, with a key and a value per head and token."""
  def latent(name):
    y = x @ params[f'{name}_down']['kernel']
    mean = (y**2).mean(-1, keepdims=True)
    return y / xp.sqrt(mean + 1e-6) * params[f'{name}_norm']['scale']

  up = lambda c, name: mixer_oracle.heads(xp, c, params[name])
  c, cq = latent('kv'), latent('query')
  q = xp.concatenate(
      [up(cq, 'query_up'), mixer_oracle.turn(xp, up(cq, 'query_rotary'))], -1)
  content = up(c, 'key_up')
  # All heads share one rotary key.
  turned = mixer_oracle.turn(xp, up(x, 'key_rotary'))
  k = xp.concatenate(
      [content, xp.concatenate([turned] * content.shape[2], 2)], -1)
  o = mixer_oracle.attention(
      xp, q, k, up(c, 'value_up'), mask, q.shape[-1]**-0.5)
  return mixer_oracle.merge(xp, o, params['out'])


def _cross(xp, params, x, mask):
  q, k, v = mixer_oracle.qkv(xp, x, params)
  scale = q.shape[-1]**-0.5
  z = xp.stack([params['latents']] * len(x))
  read = mixer_oracle.attention(xp, z, k, v, mask, scale)
  key, value = (xp.einsum('bmhd,hde->bmhe', read, params[name])
                for name in ('latent_key', 'latent_value'))
  every = np.ones(read.shape[:2], bool)
  o = mixer_oracle.attention(xp, q, key, value, every, scale)
  return mixer_oracle.merge(xp, o, params['out'])


def _differential(xp, params, x, mask, layer=0):
  q, k, v = mixer_oracle.qkv(xp, x, params)
  start = 0.8 - 0.6 * np.exp(-0.3 * layer)
  a, b = params['lambda_query'], params['lambda_key']
  weight = xp.exp((a[0] * b[0]).sum()) - xp.exp((a[1] * b[1]).sum()) + start
  heads = []
  for h in range(0, q.shape[2], 2):
    both = xp.concatenate([v[:, :, h:h + 1], v[:, :, h + 1:h + 2]], -1)
    read = [mixer_oracle.attention(
        xp, q[:, :, i:i + 1], k[:, :, i:i + 1], both, mask,
        q.shape[-1]**-0.5) for i in (h, h + 1)]
    o = read[0] - weight * read[1]
    norm = xp.sqrt((o**2).mean(-1, keepdims=True) + 1e-5)
    heads.append((1 - start) * o / norm * params['norm']['scale'])
  return mixer_oracle.merge(
      xp, xp.concatenate(heads, 2).reshape(q.shape), params['out'])


CHUNKED, DENSE = {'kernel': 'chunked'}, {'kernel': 'dense'}
MLA = {'kv_rank': 7, 'query_rank': 5, 'rotary_width': 6}


@pytest.mark.parametrize('name, options, oracle, arguments', [
    ('transformer', DENSE, _transformer, ()),
    ('transformer', CHUNKED, _transformer, ()),
    ('transformer', {'qkv_bias': False}, _transformer, ()),
    ('transformer_rotary', {}, _rotary, ()),
    ('transformer_rotary', {'planes': 'alternate'}, _alternate, ()),
    full('transformer_rotary', {'planes': 'alternate', 'num_heads': 1},
         _alternate, ()),
    ('transformer_alibi', {'num_heads': 2}, _alibi, ()),
    full('transformer_alibi', {'num_heads': 8, 'qkv_width': 16}, _alibi, ()),
    ('transformer_t5', {'num_buckets': 8, 'max_distance': 20}, _t5, (8, 20)),
    full('transformer_t5', {}, _t5, (32, 128)),
    ('gqa', {**CHUNKED, 'num_kv_heads': 2, 'num_heads': 4}, _grouped, ()),
    full('gqa', {**CHUNKED, 'num_kv_heads': 4, 'num_heads': 4}, _grouped, ()),
    full('gqa', {**DENSE, 'num_kv_heads': 2, 'num_heads': 4}, _grouped, ()),
    ('mqa', {}, _grouped, ()),
    ('optimised', CHUNKED, _optimised, ()),
    full('optimised', DENSE, _optimised, ()),
    ('efficient', CHUNKED, _efficient, ()),
    full('efficient', DENSE, _efficient, ()), ('super', CHUNKED, _super, ()),
    full('super', DENSE, _super, ()), ('mla', {**MLA, **CHUNKED}, _mla, ()),
    full('mla', {**MLA, **DENSE}, _mla, ()),
    ('cross', {'num_latents': 5, **CHUNKED}, _cross, ()),
    full('cross', {'num_latents': 5, **DENSE}, _cross, ()),
    ('differential', {'num_heads': 2, **CHUNKED}, _differential, (0,)),
    full('differential', {'num_heads': 4, 'layer': 3, **DENSE}, _differential,
         (3,))], ids=lambda v: v if isinstance(v, str) else '')
def test_equals_float64(name, options, oracle, arguments):
  cls = models.mixer(name)
  sizes = {k: v for k, v in {'num_heads': 3, 'qkv_width': 12}.items()
           if k in cls.__dataclass_fields__}
  # The biases of distances are read in tiles of more than 61 tokens. The key
  # bias has the gradient 0, where rounding errors of so many terms remain.
  longest, tolerance = (150, 3e-5) if name in (
      'transformer_t5', 'transformer_alibi') else (61, 1e-5)
  x, mask = mixer_oracle.ragged(longest, 20, 0, width=24)
  mixer_oracle.check(cls(**{**sizes, **options}),
                     lambda *given: oracle(*given, *arguments), x, mask,
                     tolerance=tolerance)


@pytest.mark.parametrize('module', [
    transformer, full(transformer_alibi), full(transformer_t5)])
def test_dropout_drops_weights_in_training_only_and_is_unbiased(module):
  x, mask = mixer_oracle.ragged(12, 5, width=8)
  mixer = module.Mixer(num_heads=2, qkv_width=8, attention_dropout=0.5)
  variables = mixer_oracle.init(mixer, x, mask)
  still = mixer_oracle.apply(mixer, variables, x, mask)

  def drop(key):
    return mixer.apply(variables, x, mask, train=True, rngs={'dropout': key})

  keys = jax.random.split(jax.random.key(0), 2000)
  samples = np.asarray(mixer_oracle.quick_jit(jax.vmap(drop))(keys))
  assert np.abs(samples[0] - samples[1]).max() > 0.01
  error = samples.std(0) / np.sqrt(len(samples))
  assert (np.abs(samples.mean(0) - still) <= 5 * error + 1e-6).all()


def test_record_names_the_kernel():
  mixer = transformer.Mixer
  assert mixer(kernel='dense').kernel_for(100, 512) == 'dense'
  assert mixer(attention_dropout=0.1).kernel_for(100, 512) == 'chunked'
  assert mixer(dtype=jnp.float32).kernel_for(4001, 512) == 'chunked'


@pytest.mark.parametrize('radius, sinks', [(5, 4), full(0, 0)])
def test_duo_equals_its_two_softmaxes(radius, sinks):
  seen = sparse_oracle.matrix(
      61, lambda i, j: abs(i - j) <= radius or j < sinks)

  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    keep = mask[:, None, None, :]
    whole = sparse_oracle.attend(xp, q, k, v, keep)
    near = sparse_oracle.attend(xp, q, k, v, seen & keep)
    alpha = 1 / (1 + xp.exp(-params['gate']))
    return mixer_oracle.merge(
        xp, alpha * whole + (1 - alpha) * near, params['out'])

  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer = models.mixer('duo')(
      num_heads=2, qkv_width=8, radius=radius, num_sinks=sinks)
  variables = mixer_oracle.init(mixer, x, mask)
  variables['params']['gate'] = np.float32([[1.5], [-0.7]])
  mixer_oracle.check(mixer, oracle, x, mask, variables=variables)
