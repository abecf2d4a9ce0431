"""Compares mixers with gated matrix states with their recurrences, in float64.

Each oracle computes one token after another, LION's all pairs at once.
"""

import jax
import numpy as np
import pytest

from lra import models
from lra.nn.norm import EPS
from tests.helpers import mixer_oracle, small
from tests.helpers import recurrent_oracle as parts
from tests.helpers.mixer_oracle import heads as project
from tests.helpers.recurrent_oracle import dense, sigmoid


def gla(direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    qkv = [(name, project(xp, x, p[name]))
           for name in ('query', 'key', 'value')]
    low = x @ p['forget_down']['kernel']
    forget = project(xp, low, p['forget_up'])
    decay = sigmoid(xp, forget) ** (1 / 16)

    def one_way(reverse):
      done = []
      for name, y in qkv:
        if 'query_convolution' in p:
          y = parts.convolve(xp, y, p[f'{name}_convolution'], mask, reverse)
        done.append(y)
      return parts.attention(
          xp, *done, decay, mask, done[0].shape[-1]**-0.5, reverse)

    return parts.gated_output(xp, parts.both(direction, one_way), x, p)

  return oracle


def retnet(direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    q, k, v = (project(xp, x, p[name])
               for name in ('query', 'key', 'value'))
    heads, width = q.shape[2:]
    q, k = mixer_oracle.turn(xp, q), mixer_oracle.turn(xp, k)
    decay = (1 - 2.0 ** (-5 - np.arange(heads)))[:, None] * np.ones(q.shape)
    o = parts.both(direction, lambda reverse: parts.attention(
        xp, q, k, v, decay, mask, width**-0.5, reverse))
    return parts.gated_output(xp, o, x, p)

  return oracle


def _eps(released):
  return 1e-5 if released else EPS


def hgrn2(direction='bidirectional', layer=0, released=True, **_):
  def oracle(xp, p, x, mask):
    q, f, v = (project(xp, x, p[name])
               for name in ('query', 'forget', 'value'))
    least = 0
    if layer and 'lower' in p:
      e = xp.exp(p['lower']['bounds'])
      least = (e[:layer].sum(0) / e.sum(0)).reshape(3, -1)
    f = least + (1 - least) * sigmoid(xp, f)
    o = parts.both(direction, lambda reverse: parts.attention(
        xp, sigmoid(xp, q), 1 - f, parts.silu(xp, v), f, mask,
        reverse=reverse)).reshape(x.shape)
    o = parts.layer_norm(xp, o, _eps(released))
    return dense(o * p['norm']['scale'] + p['norm']['bias'], p['out'])

  return oracle


def metala(direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    def one_way(reverse):
      u = x
      if 'convolution' in p:
        u = parts.convolve(xp, x, p['convolution'], mask, reverse)
      q, v = (project(xp, u, p[name]) for name in ('query', 'value'))
      decay = sigmoid(xp, project(xp, u, p['forget'])) ** (1 / 16)
      o = parts.attention(
          xp, q, 1 - decay, v, decay, mask, q.shape[-1]**-0.5, reverse)
      if 'augmentation' in p:
        own = (q * (1 - decay) * p['augmentation']).sum(-1, keepdims=True)
        o = o + sigmoid(xp, own * v)
      return parts.layer_norm(xp, o, 1e-5) * parts.silu(
          xp, project(xp, u, p['gate']))

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
      c = parts.convolve(xp, u, p['convolution'], mask, reverse)
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
  def step(carry, q, k, v, decay):
    S, last = carry
    S = decay[..., None, None] * S + k[..., None] * v[:, :, None]
    return (S, xp.einsum('bhn,bhne->bhe', q, S)), last

  batch, _, heads, width = v.shape
  start = (xp.zeros((batch, heads, q.shape[-1], width)),
           xp.zeros((batch, heads, width)))
  return parts.loop(xp, step, start, (q, k, v, decay), mask, reverse)


def hydra(heads=4, groups=1, direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    batch, length = mask.shape
    z, u, step = (x @ p[name]['kernel'] for name in ('gate', 'inputs', 'step'))
    u = parts.convolve(xp, u, p['convolution'], mask,
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


def lion(decay='selective', direction='bidirectional', released=True, **_):
  def oracle(xp, p, x, mask):
    q, k, v = (project(xp, x, p[name])
               for name in ('query', 'key', 'value'))
    q, k = _features(xp, q, decay), _features(xp, k, decay)
    a = xp.ones(q.shape[:3])
    if decay != 'none':
      logit = p['forget'] + (
          x @ p['forget_of_input']['kernel'] if decay == 'selective' else 0)
      a = a / (1 + xp.exp(logit))
    kept = mask.copy()
    if released and decay == 'selective':
      for row in kept:  # the first token's gate is 1
        row[row.argmax()] = False
    log_a = xp.where(kept[..., None], xp.log(a), 0)
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


def _memory(xp, q, k, v, gate, forget, mask, reverse, released):
  """Computes C and n token by token, without a stabiliser.

  The largest of all weights so far, e^m, only sets what is added to a divisor.
  """
  def step(carry, q, k, v, gate, forget):
    C, n, top = carry
    top = xp.maximum(forget * top, gate)
    C = forget[..., None, None] * C + (
        gate[..., None, None] * k[..., None] * v[:, :, None])
    n = forget[..., None] * n + gate[..., None] * k
    below = xp.maximum(xp.abs((q * n).sum(-1)), 1)
    below = below + 1e-6 * top if released else xp.maximum(below, 1e-6 * top)
    return (C, n, top), xp.einsum('bhn,bhne->bhe', q, C) / below[..., None]

  start = (xp.zeros((len(q), *k.shape[2:], v.shape[-1])),
           xp.zeros((len(q), *k.shape[2:])), xp.zeros(gate[:, 0].shape))
  return parts.loop(xp, step, start, (q, k, v, gate, forget), mask, reverse)


def mlstm(heads=3, forget_gate='sigmoid', direction='bidirectional',
          released=True, **_):
  def oracle(xp, p, x, mask):
    u, z = x @ p['inputs']['kernel'], x @ p['gate']['kernel']

    def blocks(y, weight):
      y = y.reshape(*mask.shape, *weight.shape[:2])
      return xp.einsum('blki,kio->blko', y, weight).reshape(z.shape)

    def one_way(reverse):
      c = parts.convolve(xp, u, p['convolution'], mask, reverse)
      qkv = [blocks(c, p['query']), blocks(c, p['key']), blocks(u, p['value'])]
      both = xp.concatenate(qkv, -1)
      gate, forget = (both @ p[name]['kernel'] + p[name]['bias']
                      for name in ('input_gate', 'forget_gates'))
      forget = (sigmoid(xp, forget) if forget_gate == 'sigmoid'
                else xp.exp(forget))
      q, k, v = (y.reshape(*mask.shape, heads, -1) for y in qkv)
      h = _memory(xp, q, k / k.shape[-1]**0.5, v, xp.exp(gate), forget, mask,
                  reverse, released)
      return h, c

    ways = [one_way(reverse) for reverse in parts.passes(direction)]
    h = parts.layer_norm(xp, sum(h for h, _ in ways), 1e-5).reshape(z.shape)
    y = h * p['norm'] + p['skip'] * sum(c for _, c in ways)
    return (y * parts.silu(xp, z)) @ p['out']['kernel']

  return oracle


def _bounds(xp, table, layer):
  """Returns the softmax over layers, summed over the layers below `layer`."""
  e = xp.exp(table - table.max(0))
  return (e / e.sum(0))[:layer].sum(0)


def hgrn(layer=0, direction='bidirectional', share_theta=False, table=None,
         released=True, **_):
  def oracle(xp, p, x, mask):
    low = _bounds(xp, p['lower']['bounds'] if table is None else table, layer)
    decay = low + (1 - low) * sigmoid(xp, dense(x, p['decay']))
    pair = parts.silu(xp, dense(x, p['input']))
    c = pair[..., 0::2] + 1j * pair[..., 1::2]
    total = 0
    for reverse in parts.passes(direction):
      own = reverse and not share_theta
      turn = xp.exp(1j * p['theta_reverse' if own else 'theta'])

      def step(h, decay, c):
        return (decay * turn * h + (1 - decay) * c,) * 2  # noqa: B023

      total = total + parts.loop(
          xp, step, 0 * c[:, 0], (decay, c), mask, reverse)
    y = xp.concatenate([total.real, total.imag], -1)
    y = parts.layer_norm(xp, y, _eps(released))
    y = y * p['norm']['scale'] + p['norm']['bias']
    return dense(y * parts.silu(xp, dense(x, p['gate'])), p['output'])

  return oracle


# The oracle and its options; the first options of each are the quick ones.
CASES = {
    gla: [{}, {'direction': 'causal', 'key_width': 12, 'value_width': 9},
          {'conv_width': 3, 'gate_rank': 2}],
    retnet: [{}, {'direction': 'causal', 'key_width': 12, 'value_width': 9}],
    hgrn2: [{}, {'direction': 'causal', 'layer': 2, 'num_layers': 4},
            {'layer': 1, 'num_layers': 4, 'lower_bound': False}],
    hgrn: [{'layer': 2, 'num_layers': 3},
           {'direction': 'causal', 'layer': 1, 'num_layers': 3}, {},
           {'layer': 2, 'num_layers': 3, 'share_theta': True}],
    metala: [{}, {'direction': 'causal', 'key_width': 12,
                  'augmentation': False}, {'conv_width': 3}],
    mamba2: [{'direction': 'causal', 'groups': 2, 'expand': 1}, {},
             {'groups': 4, 'conv_width': 3}],
    hydra: [{}, {'direction': 'causal', 'groups': 2, 'expand': 1},
            {'groups': 4, 'conv_width': 3}],
    lion: [{}, {'decay': 'fixed', 'memory': 'long'}, {'decay': 'none'},
           {'direction': 'causal'}, {'direction': 'causal', 'decay': 'fixed'},
           {'released': False}],
    mlstm: [{'direction': 'causal', 'forget_gate': 'exponential'}, {},
            {'expand': 1, 'block_width': 6, 'conv_width': 3},
            {'released': False}]}
SIZES = {hgrn: {}, mamba2: {'num_heads': 4, 'state_dim': 5},
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


@pytest.mark.parametrize('oracle, size, options', [
    (hgrn, 1e-3, {}), (hgrn2, 3e-2, {}), (lion, 1, {}),
    (mlstm, 1, {'direction': 'causal', 'forget_gate': 'exponential'})])
def test_older_records_keep_their_rules(oracle, size, options):
  """Small inputs show the number that is added to the norm's variance."""
  x, mask = mixer_oracle.ragged(6, 4, width=12)
  x *= size
  variables = mixer_oracle.init(_mixer(oracle, **options), x, mask)
  if oracle is mlstm:  # small queries and large gates show what is added
    variables['params']['query'] *= np.float32(1e-5)
    variables['params']['input_gate']['bias'] += np.float32(30)
  exact = jax.tree.map(np.float64, variables['params'])
  found = {}
  for released in (True, False):
    mixer = _mixer(oracle, released=released, **options)
    found[released] = mixer_oracle.apply(mixer, variables, x, mask)
    want = oracle(released=released, **options)(
        np, exact, x.astype(np.float64), mask)
    small.assert_close(found[released][mask], want[mask], 1e-4)
  apart = np.abs(found[True] - found[False])[mask].max()
  assert apart > 3e-6 * np.abs(found[True]).max()


def test_start_of_mlstm():
  x, mask = mixer_oracle.ragged(4, width=8)
  p = mixer_oracle.start(models.mixer('mlstm')(num_heads=4), x, mask)
  np.testing.assert_allclose(p['forget_gates']['bias'], [3, 4, 5, 6])
  assert not p['input_gate']['kernel'].any()
  assert not p['forget_gates']['kernel'].any()


def test_start_of_hgrn():
  """The bound of layer k starts at k / K, and angles at 10000^(-2 d / D)."""
  x, mask = mixer_oracle.ragged(4, width=8)
  p = mixer_oracle.start(models.mixer('hgrn')(layer=1, num_layers=4), x, mask)
  np.testing.assert_allclose(
      [_bounds(np, np.float64(p['lower']['bounds']), k) for k in range(4)],
      np.repeat([[0], [0.25], [0.5], [0.75]], 8, axis=1))
  np.testing.assert_allclose(
      p['theta'], 10_000.0 ** (-2 * np.arange(8) / 8), rtol=1e-6)
  np.testing.assert_array_equal(p['theta'], p['theta_reverse'])


def test_all_layers_of_an_encoder_share_one_table():
  """The encoder adds up the layers, with the lower bounds of one table."""
  c = small.config('hgrn', 'listops')
  c.encoder.update(num_layers=3, norm='none', block='none', pooling='mean',
                   positions='none', remat=True)
  p = small.make(c)
  params = small.random_params(p)
  tables = [name for name in map(jax.tree_util.keystr, dict(
      jax.tree_util.tree_leaves_with_path(params))) if 'bounds' in name]
  assert tables == ["['encoder']['mixer']['bounds']"]
  tokens = small.batch(p.objective.task, 3, 24)['tokens']
  got, _ = jax.jit(lambda params: p.model.encoder.apply(
      {'params': params}, tokens, train=False))(params['encoder'])
  exact = jax.tree.map(np.float64, params['encoder'])
  x = exact['embedding']['embedding'][tokens]
  for k in range(3):
    x = x + hgrn(k, table=exact['mixer']['bounds'])(
        np, exact[f'block_{k}']['mixer'], x, tokens > 0)
  small.assert_close(np.asarray(got)[tokens > 0], x[tokens > 0])
