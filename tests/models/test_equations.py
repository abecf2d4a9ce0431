"""Compares mixers with their equations for all pairs of tokens, in float64."""

import functools

import jax
import numpy as np
import pytest

from lra import models
from lra.models import additive, luong_local, selective
from tests.helpers import gradients, mixer_oracle, small, sparse_oracle
from tests.helpers.mixer_oracle import full


def _additive(xp, params, x, mask):
  q, k, v = mixer_oracle.qkv(xp, x, params)
  hidden = xp.tanh(q[:, :, None] + k[:, None])  # [B, L, L, H, Dh]
  logits = xp.einsum('bijhd,hd->bhij', hidden, params['score'])
  weights = mixer_oracle.softmax(xp, logits, mask)
  return mixer_oracle.merge(
      xp, mixer_oracle.weigh(xp, weights, v), params['out'])


def _selective(direction):
  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    L = x.shape[1]
    logits = xp.einsum('blhd,bshd->bhls', q, k) / q.shape[-1]**0.5
    i, j = np.arange(L)[:, None], np.arange(L)
    seen = (j <= i) | (direction != 'causal')
    may = seen & (j != 0) & (j != i)
    may = may & mask[:, :, None] & mask[:, None]
    select = xp.where(may, xp.maximum(logits[:, 0], 0), 0)
    earlier = np.tril(np.ones((L, L)), -1)
    forgotten = xp.einsum('ik,bkj->bij', earlier, select)
    allowed = (mask[:, None] & seen)[:, None]
    weights = mixer_oracle.softmax_under(
        xp, logits - forgotten[:, None], allowed)
    return mixer_oracle.merge(
        xp, mixer_oracle.weigh(xp, weights, v), params['out'])

  return oracle


def _infini(delta, size=5):
  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)

    def elu1(y):
      return xp.where(y > 0, y + 1, xp.exp(xp.where(y > 0, 0, y)))

    sq, sk = elu1(q), elu1(k) * mask[:, :, None, None]
    gate = 1 / (1 + xp.exp(-params['beta']))[:, None]
    i = np.arange(x.shape[1])
    near = (i[:, None] >= i) & (i[:, None] // size == i // size)
    logits = xp.einsum('blhd,bshd->bhls', q, k) / q.shape[-1]**0.5
    seen = near & mask[:, None, None, :]
    local = mixer_oracle.weigh(
        xp, mixer_oracle.softmax_under(xp, logits, seen), v)
    # The part of each value that earlier segments have stored.
    stored = [xp.zeros_like(v[:, :0])]
    for start in range(0, x.shape[1], size):
      here, before = slice(start, start + size), slice(0, start)
      w = xp.einsum('bshd,bthd->bsth', sk[:, here], sk[:, before])
      old = xp.einsum('bsth,bthe->bshe', w, xp.concatenate(stored, 1))
      old = old / (w.sum(2) + 1e-6)[..., None]
      value = v[:, here] - (old if delta else 0)
      stored.append(value * mask[:, here, None, None])
    w = xp.einsum('bshd,bthd->bsth', sq, sk)
    w = w * (i[:, None] // size > i // size)[..., None]
    far = xp.einsum('bsth,bthe->bshe', w, xp.concatenate(stored, 1))
    far = far / (w.sum(2) + 1e-6)[..., None]
    o = gate * far + (1 - gate) * local
    return mixer_oracle.merge(xp, o, params['out'])

  return oracle


def _compressive(xp, params, x, mask, size=6, reach=2, rate=3,
                 compression='convolution'):
  n = x.shape[1]
  whole = -(-n // size) * size
  zeros = xp.zeros((len(x), whole - n, x.shape[2]))
  inputs = xp.concatenate([x * mask[..., None], zeros], 1)
  there = np.pad(mask, ((0, 0), (0, whole - n)))
  i = np.arange(whole)
  apart = i[:, None] // size - i // size
  seen = [(apart <= 1) & (apart >= 0) & (i[:, None] >= i)]
  if reach:
    summaries = _summaries(xp, params, inputs, there, rate, compression)
    inputs = xp.concatenate([inputs, summaries], 1)
    there = np.concatenate(
        [there, there.reshape(len(x), -1, rate).any(-1)], 1)
    apart = i[:, None] // size - i[::rate] // size
    seen.append((apart >= 2) & (apart <= 1 + reach))
  q, k, v = (mixer_oracle.heads(xp, inputs, params[name])
             for name in ('query', 'key', 'value'))
  o = sparse_oracle.attend(
      xp, q[:, :whole], k, v,
      np.concatenate(seen, 1) & there[:, None, None, :])
  return mixer_oracle.merge(xp, o[:, :n], params['out'])


def _summaries(xp, params, inputs, there, rate, compression):
  """Compresses each `rate` inputs into one; padding alone gives 0."""
  if compression == 'convolution':
    groups = inputs.reshape(len(inputs), -1, rate * inputs.shape[2])
    return groups @ params['compress']['kernel'] + params['compress']['bias']
  reduce = {'mean': lambda x: x.mean(0), 'max': lambda x: x.max(0)}[compression]
  nothing = xp.zeros(inputs.shape[2])
  return xp.stack([xp.stack([
      reduce(x[i:i + rate][m[i:i + rate]]) if m[i:i + rate].any() else nothing
      for i in range(0, len(m), rate)])
      for x, m in zip(inputs, there, strict=True)])


def _gat(radius):
  """Returns a dense GAT under a mask, from equations 1 to 5."""
  def oracle(xp, params, x, mask):
    h = mixer_oracle.heads(xp, x, params['value'])
    own, other = ((h * params[name]).sum(-1).swapaxes(1, 2)
                  for name in ('own_score', 'other_score'))
    e = own[..., :, None] + other[..., None, :]
    e = xp.where(e > 0, e, 0.2 * e)
    near = sparse_oracle.matrix(x.shape[1], lambda i, j: abs(i - j) <= radius)
    weights = mixer_oracle.softmax_under(
        xp, e, np.broadcast_to(near & mask[:, None, None, :], e.shape))
    o = mixer_oracle.weigh(xp, weights, h).reshape(x.shape) + params['bias']
    return xp.where(o > 0, o, xp.expm1(xp.where(o > 0, 0, o)))

  return oracle


def _luong(half_width):
  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    hidden = xp.tanh(mixer_oracle.heads(xp, x, params['centre']))
    share = 1 / (1 + xp.exp(-(hidden * params['centre_score']).sum(-1)))
    outs = []
    for b, row in enumerate(mask):
      at = np.flatnonzero(row)  # token n is at position at[n]
      apart = np.arange(len(at)) - (len(at) * share[b])[..., None]
      seen = abs(apart) <= half_width
      logits = xp.einsum('lhd,shd->lhs', q[b], k[b, at]) * q.shape[-1]**-0.5
      e = xp.where(seen, xp.exp(logits), 0)
      weights = e / e.sum(-1, keepdims=True) * xp.exp(
          -apart**2 / (2 * (half_width / 2)**2))
      outs.append(xp.einsum('lhs,shd->lhd', weights, v[b, at]))
    return mixer_oracle.merge(xp, xp.stack(outs), params['out'])

  return oracle


def _multi_attention(xp, params, name, query, context):
  """Attends from N nodes [N, D], each to its own K nodes [N, K, D]."""
  q, k, v = (
      xp.einsum('nkd,dhe->nkhe', y, params[f'{name}_{kind}']['kernel']) +
      params[f'{name}_{kind}']['bias'] for y, kind in (
          (query[:, None], 'query'), (context, 'key'), (context, 'value')))
  e = xp.exp((q * k).sum(-1) * q.shape[-1]**-0.5)  # [N, K, H]
  o = ((e / e.sum(1, keepdims=True))[..., None] * v).sum(1)
  out, norm = params[f'{name}_out'], params[f'{name}_norm']
  y = xp.einsum('nhe,hed->nd', o, out['kernel']) + out['bias']
  y = xp.where(y > 0, y, 0)
  y = (y - y.mean(-1, keepdims=True)) / xp.sqrt(
      y.var(-1, keepdims=True) + 1e-6)
  return y * norm['scale'] + norm['bias']


def _star(rounds):
  def sequence(xp, params, embeddings):
    n = len(embeddings)
    h, s = embeddings, embeddings.mean(0)
    for t in range(rounds):
      i = np.arange(n)
      context = xp.stack([h[i - 1], h, h[(i + 1) % n], embeddings,
                          s + 0 * h], 1)
      h = _multi_attention(xp, params, f'ring_{t}', h, context)
      if t < rounds - 1:
        s = _multi_attention(
            xp, params, f'relay_{t}', s[None],
            xp.concatenate([s[None], h])[None])[0]
    return h

  def oracle(xp, params, x, mask):
    rows = []
    for b, row in enumerate(mask):
      at = np.flatnonzero(row)
      states = sequence(xp, params, x[b, at]) if len(at) else x[b, at]
      states = xp.concatenate([states, xp.zeros((1, x.shape[-1]))])
      rows.append(states[np.where(row, np.cumsum(row) - 1, -1)])
    return xp.stack(rows)

  return oracle


# sharing: function (query side, key side) -> names of the projections
PROJECTIONS = {
    'all': lambda query, key: ('query', 'key', 'value'),
    'sides': lambda query, key: [
        f'{query}_{name}' for name in ('query', 'key', 'value')],
    'none': lambda query, key: [f'{query}_query', f'{query}_{key}_key',
                                f'{query}_{key}_value']}


def _etc(radius, num_global, k, sharing):
  sides = ('global', 'long')
  side = np.array([sides[i >= num_global] for i in range(61)])
  label = np.array([[np.clip(j - i, -k, k) + k if side[i] == side[j]
                     else 2 * k + 1 for j in range(61)] for i in range(61)])
  seen = sparse_oracle.matrix(61, lambda i, j: (
      'global' in (side[i], side[j]) or abs(i - j) <= radius))

  def oracle(xp, params, x, mask):
    logits, values = 0, []
    for query in sides:
      for key in sides:
        names = PROJECTIONS[sharing](query, key)
        pair = (side == query)[:, None] & (side == key)
        if not pair.any():
          continue
        q, k_, v = (mixer_oracle.heads(xp, x, params[name]) for name in names)
        a = params[f'{query}_labels'][label]  # [L, L, H, Dh]
        dots = (xp.einsum('blhd,bshd->bhls', q, k_) +
                xp.einsum('blhd,lshd->bhls', q, a))
        logits = logits + xp.where(pair, dots * q.shape[-1]**-0.5, 0)
        values.append((pair, v))
    weights = mixer_oracle.softmax_under(
        xp, logits, np.broadcast_to(seen & mask[:, None, None, :],
                                    logits.shape))
    o = sum(mixer_oracle.weigh(xp, weights * pair, v) for pair, v in values)
    return mixer_oracle.merge(xp, o, params['out'])

  return oracle


THREE, TWO = ({'num_heads': heads, 'qkv_width': width} for heads, width in (
    (3, 12), (2, 12)))
EIGHT, LONG = {'num_heads': 2, 'qkv_width': 8}, sparse_oracle.LENGTHS
COMPRESSIVE = {**TWO, 'segment_size': 6, 'rate': 3}


def _compressed(reach, compression):
  return ('compressive', {**COMPRESSIVE, 'memory_segments': reach,
                          'compression': compression}, functools.partial(
      _compressive, reach=reach, compression=compression), (32, 20, 0), {})


def _etc_row(radius, num_global, k, sharing):
  return ('etc', {**EIGHT, 'radius': radius, 'num_global': num_global,
                  'max_distance': k, 'sharing': sharing},
          _etc(radius, num_global, k, sharing), LONG, {'noise': 0.3})


# name, options, oracle, lengths, and: noise and factors of parameters, so that
# weights are far from uniform; the tolerance.
@pytest.mark.parametrize('name, options, oracle, lengths, more', [
    ('additive', THREE, _additive, (80, 20, 0), {}),
    ('selective', {**THREE, 'direction': 'bidirectional'},
     _selective('bidirectional'), (61, 20, 0), {}),
    full('selective', {**THREE, 'direction': 'causal'}, _selective('causal'),
         (61, 20, 0), {}),
    ('infini', {**TWO, 'segment_size': 5}, _infini(True), (17, 8, 0),
     {'tolerance': 3e-5}),
    full('infini', {**TWO, 'segment_size': 5, 'delta': False}, _infini(False),
         (17, 8, 0), {'tolerance': 3e-5}),
    _compressed(2, 'max'), *(full(*_compressed(*row)) for row in (
        (2, 'convolution'), (2, 'mean'), (0, 'convolution'))),
    *(pytest.param(
        'gat', {'num_heads': 2, 'radius': radius}, _gat(radius), LONG,
        {'factors': {'own_score': 3, 'other_score': 3}},
        marks=pytest.mark.full if radius != 5 else ())
      for radius in (5, 0, 37, 2**20)),
    # A float32 centre near 50 is exact to 4e-6 tokens. The Gaussian may be
    # narrower than a token, so this error matters.
    *(full('luong_local', {**EIGHT, 'half_width': half}, _luong(half),
           (61, 40, 1), {'factors': {'centre_score': 4}, 'tolerance': 1e-4})
      for half in (3, 1, 40, 2**20)),
    # If ReLU leaves little, LayerNorm divides by little. This may magnify
    # float32 rounding errors a hundredfold in each round.
    *(pytest.param('star_transformer', {'num_heads': 2, 'qkv_width': 4,
                                        'rounds': rounds}, _star(rounds),
                   (9, 6, 2, 1, 0), {'tolerance': 1e-4},
                   marks=pytest.mark.full if rounds > 1 else ())
      for rounds in (1, 2, 3)),
    *(full(*_etc_row(*row)) for row in (
        (18, 3, 4, 'none'), (5, 1, 30, 'sides'), (0, 2, 0, 'all'),
        (5, 0, 2, 'all'), (2**20, 3, 4, 'all')))],
    ids=lambda x: x if isinstance(x, str) else '')
def test_equals_its_equation(
    monkeypatch, name, options, oracle, lengths, more):
  monkeypatch.setattr(luong_local, 'CHUNK', 16)
  x, mask = mixer_oracle.ragged(*lengths, width=16)
  mask[0, 3:5] = False  # padding may stand between tokens
  mixer = models.mixer(name)(**options)
  variables = mixer_oracle.init(mixer, x, mask, noise=more.get('noise', 0.1))
  for parameter, factor in more.get('factors', {}).items():
    variables['params'][parameter] *= factor
  mixer_oracle.check(mixer, oracle, x, mask, variables=variables,
                     tolerance=more.get('tolerance', 1e-5))


@pytest.mark.every(2)
@pytest.mark.parametrize('size', [15, 38, 500])
def test_large_queries_and_keys(size):
  """Compares with float64 for large q and k, whose sum is large or near 0."""
  rng = np.random.default_rng(0)
  q, k = (size * rng.choice([-1, 1], (1, 20, 1, 4)) for _ in range(2))
  # q + k is 0 or +-2 size. If size < 40, noise keeps the sum of 0 off 0.
  q = q + rng.uniform(-1, 1, q.shape) * (size < 40)
  v = rng.normal(size=(1, 20, 1, 3))
  weight, mask = rng.normal(size=(1, 4)), np.ones((1, 20), bool)
  arguments = [np.float32(x) for x in (q, k, v, weight)]
  found, *pulled = gradients.with_gradients(
      lambda *args: additive.attend(*args, mask, tile=7))(
          np.ones(v.shape, np.float32), *arguments)
  logits = np.einsum('bijhd,hd->bhij', np.tanh(
      np.float64(arguments[0])[:, :, None] + k[:, None]), weight)
  p = np.exp(logits - logits.max(-1, keepdims=True))
  small.assert_close(found, np.einsum(
      'bhij,bjhe->bihe', p / p.sum(-1, keepdims=True), v))
  assert all(np.isfinite(x).all() for x in pulled)


@pytest.mark.every(3)
@pytest.mark.parametrize('causal', [False, True])
@pytest.mark.parametrize('rows', [1, 7, 16])
def test_blocks_of_queries_hand_on_what_is_forgotten(causal, rows):
  rng = np.random.default_rng(0)
  q, k, v = (rng.normal(size=(2, 33, 2, 8)).astype(np.float32)
             for _ in range(3))
  mask = np.arange(33) < np.array([[33], [12]])
  run = functools.partial(selective.attend, mask_BxL=mask, causal=causal)
  small.assert_close(
      jax.jit(functools.partial(run, rows=rows))(q, k, v)[mask],
      jax.jit(functools.partial(run, rows=64))(q, k, v)[mask])


def test_a_short_sequence_is_one_segment_of_its_own_length():
  x, mask = mixer_oracle.ragged(10, 7, width=16)
  long, short = (
      models.mixer('compressive')(**TWO, segment_size=size, rate=4)
      for size in (1024, 12))
  variables = mixer_oracle.init(long, x, mask)
  np.testing.assert_array_equal(
      *(mixer_oracle.apply(m, variables, x, mask) for m in (long, short)))
