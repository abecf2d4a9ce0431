"""Compares mixers with gated matrix states with their recurrences, in float64.

Each oracle computes one token after another, LION's all pairs at once.
"""

import numpy as np
import pytest

from lra import models
from tests.helpers import gated_oracle as parts
from tests.helpers import mixer_oracle, small
from tests.helpers.state_space_oracle import dense, sigmoid


def gla(direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    qkv = [(name, parts.project(xp, x, p[name]))
           for name in ('query', 'key', 'value')]
    low = x @ p['forget_down']['kernel']
    forget = parts.project(xp, low, p['forget_up'], bias=True)
    decay = sigmoid(xp, forget) ** (1 / 16)

    def one_way(reverse):
      done = []
      for name, y in qkv:
        if 'query_convolution' in p:
          y = parts.convolve(
              xp, y.reshape(*mask.shape, -1),
              p[f'{name}_convolution']['kernel'], mask, reverse
          ).reshape(y.shape)
        done.append(y)
      return parts.attention(
          xp, *done, decay, mask, done[0].shape[-1]**-0.5, reverse)

    return parts.gated_output(xp, parts.both(direction, one_way), x, p)

  return oracle


def retnet(direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    q, k, v = (parts.project(xp, x, p[name])
               for name in ('query', 'key', 'value'))
    heads, width = q.shape[2:]
    q, k = mixer_oracle.turn(xp, q), mixer_oracle.turn(xp, k)
    decay = (1 - 2.0 ** (-5 - np.arange(heads)))[:, None] * np.ones(q.shape)
    o = parts.both(direction, lambda reverse: parts.attention(
        xp, q, k, v, decay, mask, width**-0.5, reverse))
    return parts.gated_output(xp, o, x, p)

  return oracle


def hgrn2(direction='bidirectional', layer=0, **_):
  def oracle(xp, p, x, mask):
    q, f, v = (parts.project(xp, x, p[name], bias=True)
               for name in ('query', 'forget', 'value'))
    least = 0
    if layer and 'lower' in p:
      e = xp.exp(p['lower']['bounds'])
      least = (e[:layer].sum(0) / e.sum(0)).reshape(3, -1)
    f = least + (1 - least) * sigmoid(xp, f)
    o = parts.both(direction, lambda reverse: parts.attention(
        xp, sigmoid(xp, q), 1 - f, parts.silu(xp, v), f, mask,
        reverse=reverse)).reshape(x.shape)
    o = parts.layer_norm(xp, o, 1e-6) * p['norm']['scale'] + p['norm']['bias']
    return dense(o, p['out'])

  return oracle


def metala(direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    def one_way(reverse):
      u = x
      if 'convolution' in p:
        u = parts.convolve(xp, x, p['convolution']['kernel'], mask, reverse)
      q, v = (parts.project(xp, u, p[name]) for name in ('query', 'value'))
      decay = sigmoid(xp, parts.project(xp, u, p['forget'])) ** (1 / 16)
      o = parts.attention(
          xp, q, 1 - decay, v, decay, mask, q.shape[-1]**-0.5, reverse)
      if 'augmentation' in p:
        own = (q * (1 - decay) * p['augmentation']).sum(-1, keepdims=True)
        o = o + sigmoid(xp, own * v)
      return parts.layer_norm(xp, o, 1e-5) * parts.silu(
          xp, parts.project(xp, u, p['gate'], bias=True))

    return xp.einsum('blhe,hed->bld', parts.both(direction, one_way),
                     p['out']['kernel'])

  return oracle


def mamba2(heads=4, groups=1, direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    z, u, step = (x @ p[name]['kernel'] for name in ('gate', 'inputs', 'step'))
    dt = xp.log1p(xp.exp(step + p['step_bias']))
    decay = xp.exp(-xp.exp(p['log_rate']) * dt)
    inner, (batch, length) = z.shape[-1], mask.shape

    def one_way(reverse):
      c = parts.convolve(xp, u, p['convolution']['kernel'], mask, reverse,
                         p['convolution']['bias'])
      v = c[..., :inner].reshape(batch, length, heads, -1)
      k, q = (xp.repeat(
          c[..., inner:].reshape(batch, length, 2, groups, -1)[:, :, i],
          heads // groups, axis=2) for i in (0, 1))
      o = parts.attention(xp, q, k, v * dt[..., None],
                          decay[..., None] * np.ones(q.shape), mask,
                          reverse=reverse)
      return o + p['skip'][:, None] * v

    y = parts.both(direction, one_way).reshape(z.shape) * parts.silu(xp, z)
    y = parts.rms(xp, y.reshape(batch, length, groups, -1), p['norm']['scale'])
    return y.reshape(z.shape) @ p['out']['kernel']

  return oracle


def _read_before(xp, q, k, v, decay, mask, reverse):
  """Returns, for each token, the output of the token before it."""
  def step(carry, now):
    S, last = carry
    q, k, v, decay, token = now
    new = decay[..., None, None] * S + k[..., None] * v[:, :, None]
    here = xp.einsum('bhn,bhne->bhe', q, new)
    return (xp.where(token[:, None, None, None], new, S),
            xp.where(token[:, None, None], here, last)), last

  batch, _, heads, width = v.shape
  start = (xp.zeros((batch, heads, q.shape[-1], width)),
           xp.zeros((batch, heads, width)))
  return parts.loop(xp, step, start, (q, k, v, decay, mask), reverse)


def hydra(heads=4, groups=1, direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    batch, length = mask.shape
    z, u, step = (x @ p[name]['kernel'] for name in ('gate', 'inputs', 'step'))
    u = parts.convolve(xp, u, p['convolution']['kernel'], mask, False,
                       p['convolution']['bias'],
                       centred=direction != 'causal')
    inner = z.shape[-1]
    v = u[..., :inner].reshape(batch, length, heads, -1)
    bc = u[..., inner:].reshape(batch, length, -1, 2, groups,
                                (u.shape[-1] - inner) // (
                                    2 * groups * step.shape[-1] // heads))
    dt = xp.log1p(xp.exp(
        step.reshape(batch, length, -1, heads) + p['step_bias']))
    y = v * (u[..., :inner] @ p['skip_of_input']['kernel']
             + p['skip'])[..., None]
    for way in range(dt.shape[2]):
      k, q = (xp.repeat(bc[:, :, way, i], heads // groups, axis=2)
              for i in (0, 1))
      y = y + _read_before(
          xp, q, k, v * dt[:, :, way, :, None],
          xp.exp(-xp.exp(p['log_rate']) * dt[:, :, way]), mask, way == 1)
    y = parts.rms(xp, y.reshape(z.shape), p['norm']['scale'])
    return (y * parts.silu(xp, z)) @ p['out']['kernel']

  return oracle


def _features(xp, y, decay):
  if decay == 'none':
    return xp.where(y > 0, y + 1, xp.exp(xp.where(y > 0, 0, y)))
  y = parts.silu(xp, y) + 0.5
  return y / xp.sqrt((y**2).sum(-1, keepdims=True))


def lion(decay='selective', direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    q, k, v = (parts.project(xp, x, p[name])
               for name in ('query', 'key', 'value'))
    q, k = _features(xp, q, decay), _features(xp, k, decay)
    a = xp.ones(q.shape[:3])
    if decay != 'none':
      logit = p['forget'] + (
          x @ p['forget_of_input']['kernel'] if decay == 'selective' else 0)
      a = a / (1 + xp.exp(logit))
    log_a = xp.where(mask[..., None], xp.log(a), 0)
    until = xp.cumsum(log_a, 1)
    before = until - log_a
    i, j = np.arange(x.shape[1])[:, None], np.arange(x.shape[1])
    earlier = (i >= j)[None, :, :, None]
    weight = xp.where(
        earlier, before[:, :, None] - before[:, None],
        until[:, None] - until[:, :, None])
    weight = xp.exp(weight) * xp.einsum('bihn,bjhn->bijh', q, k)
    weight = xp.where(mask[:, None, :, None], weight, 0)
    if direction == 'causal':
      weight = xp.where(earlier, weight, 0)
    o = xp.einsum('bijh,bjhe->bihe', weight, v) / (
        weight.sum(2)[..., None] + 1e-6)
    return mixer_oracle.merge(xp, o, p['out'])

  return oracle


def _memory(xp, q, k, v, gate, forget, mask, reverse):
  """Computes C and n token by token, without a stabiliser."""
  def step(carry, now):
    C, n = carry
    q, k, v, gate, forget, token = now
    new_C = forget[..., None, None] * C + (
        gate[..., None, None] * k[..., None] * v[:, :, None])
    new_n = forget[..., None] * n + gate[..., None] * k
    C = xp.where(token[:, None, None, None], new_C, C)
    n = xp.where(token[:, None, None], new_n, n)
    below = xp.maximum(xp.abs((q * n).sum(-1)), 1)
    h = xp.einsum('bhn,bhne->bhe', q, C) / below[..., None]
    return (C, n), xp.where(token[:, None, None], h, 0)

  start = (xp.zeros((len(q), *k.shape[2:], v.shape[-1])),
           xp.zeros((len(q), *k.shape[2:])))
  return parts.loop(xp, step, start, (q, k, v, gate, forget, mask), reverse)


def mlstm(heads=3, forget_gate='sigmoid', direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    u, z = x @ p['inputs']['kernel'], x @ p['gate']['kernel']

    def blocks(y, weight):
      y = y.reshape(*mask.shape, *weight.shape[:2])
      return xp.einsum('blki,kio->blko', y, weight).reshape(z.shape)

    def one_way(reverse):
      c = parts.convolve(xp, u, p['convolution']['kernel'], mask, reverse,
                         p['convolution']['bias'])
      qkv = [blocks(c, p['query']), blocks(c, p['key']), blocks(u, p['value'])]
      both = xp.concatenate(qkv, -1)
      gate, forget = (both @ p[name]['kernel'] + p[name]['bias']
                      for name in ('input_gate', 'forget_gates'))
      forget = (sigmoid(xp, forget) if forget_gate == 'sigmoid'
                else xp.exp(forget))
      q, k, v = (y.reshape(*mask.shape, heads, -1) for y in qkv)
      h = _memory(xp, q, k / k.shape[-1]**0.5, v, xp.exp(gate), forget, mask,
                  reverse)
      return h, c

    ways = [one_way(reverse) for reverse in (False, True)[
        :1 + (direction == 'bidirectional')]]
    h = parts.layer_norm(xp, sum(h for h, _ in ways), 1e-5).reshape(z.shape)
    y = h * p['norm'] + p['skip'] * sum(c for _, c in ways)
    return (y * parts.silu(xp, z)) @ p['out']['kernel']

  return oracle


# The oracle and its options; the first options of each are the quick ones.
CASES = {
    gla: [{}, {'direction': 'causal', 'key_width': 12, 'value_width': 9},
          {'conv_width': 3, 'gate_rank': 2}],
    retnet: [{}, {'direction': 'causal', 'key_width': 12, 'value_width': 9}],
    hgrn2: [{}, {'direction': 'causal', 'layer': 2, 'num_layers': 4},
            {'layer': 1, 'num_layers': 4, 'lower_bound': False}],
    metala: [{}, {'direction': 'causal', 'key_width': 12,
                  'augmentation': False}, {'conv_width': 3}],
    mamba2: [{'direction': 'causal', 'groups': 2, 'expand': 1}, {},
             {'groups': 4, 'conv_width': 3}],
    hydra: [{}, {'direction': 'causal', 'groups': 2, 'expand': 1},
            {'groups': 4, 'conv_width': 3}],
    lion: [{}, {'decay': 'fixed', 'memory': 'long'}, {'decay': 'none'},
           {'direction': 'causal'}, {'direction': 'causal', 'decay': 'fixed'}],
    mlstm: [{'direction': 'causal', 'forget_gate': 'exponential'}, {},
            {'expand': 1, 'block_width': 6, 'conv_width': 3}]}
SIZES = {mamba2: {'num_heads': 4, 'state_dim': 5},
         hydra: {'num_heads': 4, 'state_dim': 5}}


def _mixer(oracle, **options):
  return models.mixer(oracle.__name__)(
      **SIZES.get(oracle, {'num_heads': 3}), **options)


@pytest.mark.parametrize('oracle, options', [
    pytest.param(oracle, options, id=f'{oracle.__name__} {options}',
                 marks=pytest.mark.full if i else ())
    for oracle, cases in CASES.items() for i, options in enumerate(cases)])
def test_equals_its_recurrence(oracle, options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, :3] = mask[0, 11] = False  # padding before and between tokens
  mixer_oracle.check(_mixer(oracle, **options), oracle(**options), x, mask,
                     tolerance=5e-5 if oracle in (metala, mlstm) else 3e-5)


def test_mixes_by_a_quasiseparable_matrix():
  """The matrix from dt x to y has rank N on either side of its diagonal.

  The diagonal is 0: a state space contributes nothing of the token itself.
  """
  rng = np.random.default_rng(0)
  L, N = 12, 2
  q, k = (rng.normal(size=(2, L, 1, N)) for _ in range(2))
  decay = rng.uniform(0.5, 1, size=(2, L, 1))
  v = np.eye(L)[:, :, None, None] * np.ones((1, 1, 1, 1))
  matrix = 0
  for way in (0, 1):
    repeat = lambda y: np.repeat(y[way:way + 1], L, axis=0)
    matrix += _read_before(np, repeat(q), repeat(k), v, repeat(decay),
                           np.ones((L, L), bool), way == 1)[..., 0, 0].T
  np.testing.assert_allclose(np.diag(matrix), 0)
  assert np.linalg.matrix_rank(matrix[L // 2:, :L // 2]) == N
  assert np.linalg.matrix_rank(matrix[:L // 2, L // 2:]) == N


def test_start_of_mamba2():
  """Initial steps are log-uniform in their range, rates uniform in 1 ... 16."""
  x, mask = mixer_oracle.ragged(4, width=4)
  p = mixer_oracle.start(models.mixer('mamba2')(
      num_heads=2000, expand=500, state_dim=1, dt_min=0.01, dt_max=1.0), x,
                         mask)
  dt = np.log1p(np.exp(p['step_bias']))
  assert 0.01 <= dt.min() < 0.011 and 0.9 < dt.max() <= 1.001
  np.testing.assert_allclose(np.log(dt).mean(), np.log(0.1), atol=0.1)
  rate = np.exp(p['log_rate'])
  assert 1 <= rate.min() < 1.1 and 15.9 < rate.max() <= 16.001
  np.testing.assert_allclose(rate.mean(), 8.5, atol=0.3)


def test_all_layers_share_one_table_of_bounds():
  """The encoder holds the table; without `lower_bound` there is none."""
  for lower_bound in (True, False):
    c = small.config('hgrn2', 'listops')
    c.encoder.num_layers = 3
    c.model.lower_bound = lower_bound
    params = small.make(c).state_shape.params['encoder']
    assert not any('lower' in params[f'block_{i}']['mixer'] for i in range(3))
    assert ('mixer' in params) == lower_bound
    if lower_bound:
      assert params['mixer']['bounds'].shape == (3, 16)


@pytest.mark.every(99)
@pytest.mark.parametrize('decay', ['fixed', 'selective'])
def test_a_long_memory_starts_near_1(decay):
  x, mask = mixer_oracle.ragged(4, width=500)
  p = mixer_oracle.start(
      models.mixer('lion')(num_heads=500, decay=decay, memory='long'), x, mask)
  rest = 1 / (1 + np.exp(-p['forget']))
  assert 0.001 <= rest.min() < 0.0012 and 0.09 < rest.max() <= 0.1001


@pytest.mark.full
@pytest.mark.parametrize('size', [-100.0, 100.0])
def test_gates_out_of_the_range_of_float32(size):
  """Gates exp(+-100), not representable in float32, give the float64 result."""
  x, mask = mixer_oracle.ragged(19, 9, width=12)
  mixer = _mixer(mlstm, direction='causal')
  variables = mixer_oracle.init(mixer, x, mask)
  gate = variables['params']['input_gate']
  gate['bias'] = gate['bias'] + np.float32(size)
  mixer_oracle.check(mixer, mlstm(direction='causal'), x, mask,
                     tolerance=3e-4, variables=variables)


def test_start_of_mlstm():
  x, mask = mixer_oracle.ragged(4, width=8)
  p = mixer_oracle.start(models.mixer('mlstm')(num_heads=4), x, mask)
  np.testing.assert_allclose(p['forget_gates']['bias'], [3, 4, 5, 6])
  assert not p['input_gate']['kernel'].any()
  assert not p['forget_gates']['kernel'].any()
