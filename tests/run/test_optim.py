"""Compares schedules, update rules and averages with formulas and with optax.

Parameter groups are chosen by regular expressions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax.contrib
import pytest

from lra import kernels, models
from lra.core.errors import UserError
from lra.run import optim
from tests.helpers import small

STEPS, WARMUP, RATE = 100, 10, 0.3


def _config(**fields):
  c = small.config('transformer', 'listops', steps=STEPS, warmup_steps=WARMUP,
                   learning_rate=RATE)
  c.optim.update(fields)
  return c


@pytest.mark.parametrize('name', ['constant', 'linear', 'cosine', 'rsqrt'])
@pytest.mark.parametrize('final', [0.0, 0.1])
def test_schedule_grows_then_falls_as_its_formula(name, final):
  c = _config(schedule=name, final_fraction=final)
  rate = optim.schedule(c)
  for s in (1, 5, 10, 11, 37, 55, 99, 100):
    done = (s - WARMUP) / (STEPS - WARMUP)
    falls = {
        'constant': 1, 'linear': 1 - done * (1 - final),
        'cosine': final + (1 - final) * (1 + np.cos(np.pi * done)) / 2,
        'rsqrt': np.sqrt(WARMUP / s)}[name]
    peak = RATE / np.sqrt(WARMUP) if name == 'rsqrt' else RATE
    assert float(rate(s - 1)) == pytest.approx(
        peak * (s / WARMUP if s <= WARMUP else falls), rel=1e-5, abs=1e-7)
  for warmup in (0, 1):
    c.train.warmup_steps = warmup
    assert float(optim.schedule(c)(0)) > 0


def _sum(gradients, b):
  """Returns sum_i b^(s - i) g_i over the s gradients."""
  return sum(b**i * g for i, g in enumerate(reversed(gradients)))


def _adam(gradients, train, _):
  """Computes Adam's update in closed form (Kingma & Ba 2015, algorithm 1)."""
  b1, b2, s = train.b1, train.b2, len(gradients)
  m = (1 - b1) * _sum(gradients, b1) / (1 - b1**s)
  v = (1 - b2) * _sum([g * g for g in gradients], b2) / (1 - b2**s)
  return m / (np.sqrt(v) + train.eps)


def _lion(gradients, train, _):
  """Computes Lion's update (Chen et al. 2023, arXiv 2302.06675, algorithm 2).
  """
  *before, g = gradients
  m = (1 - train.b2) * _sum(before, train.b2)
  return np.sign(train.b1 * m + (1 - train.b1) * g)


def _sgd(gradients, _, momentum):
  """Computes heavy-ball momentum, not Nesterov's."""
  return _sum(gradients, momentum)


@pytest.mark.parametrize('b1, b2, eps, decay', [
    (0.9, 0.999, 1e-8, 0.1), (0.5, 0.98, 1e-3, 0.2)])
@pytest.mark.parametrize('name, direction, coupled', [
    ('adamw', _adam, False), ('adam', _adam, True), ('lion', _lion, False),
    ('sgd', _sgd, True)])
@jax.enable_x64(True)
def test_updates(name, direction, coupled, b1, b2, eps, decay):
  """Compares several updates with numpy; gradients vary so that b1, b2 matter.

  Only kernels decay. If `coupled`, decay is added to the gradient (L2), else
  to the update. The learning rate is large, so that updates are not lost in
  rounding; in float32 the error of 1 - b2**s alone is 1e-5.
  """
  config = small.config(
      'transformer', 'listops', b1=b1, b2=b2, eps=eps, weight_decay=decay,
      learning_rate=2.0, warmup_steps=0)
  config.optim.name, config.optim.momentum = name, b1
  tx = optim.make(config)
  want = {name: np.array([[3.0, -1.0], [0.5, 2.0]])
          for name in ('kernel', 'bias')}
  params = {name: jnp.asarray(w) for name, w in want.items()}
  state, seen = tx.init(params), {name: [] for name in params}
  for s, size in enumerate((1.0, -0.3, 0.02), 1):
    g = size * np.array([[1.0, -2.0], [0.5, 4.0]])
    grads = dict.fromkeys(params, jnp.asarray(g))
    updates, state = tx.update(grads, state, params)
    params = {name: params[name] + updates[name] for name in params}
    for name, w in want.items():
      decayed = decay * w * (name == 'kernel')
      seen[name].append(g + decayed * coupled)
      step = direction(seen[name], config.train, config.optim.momentum)
      want[name] = w - 2.0 / np.sqrt(s) * (step + decayed * (not coupled))
      small.assert_close(params[name], want[name], 1e-6)


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['adamw', 'muon', 'sgd'])
def test_gradients_side_by_side_update_alike(name):
  """The update and state computed for a GPU equal the CPU's, bit for bit."""
  config = small.config('transformer', 'listops', weight_decay=0.1)
  config.optim.name, config.optim.clip_norm = name, 1.0
  made = small.make(config)
  params = small.random_params(made)
  grads = jax.tree.map(lambda w: jnp.cos(3 * w), params)

  def updated(platform):
    tx = optim.make(config)

    def update(grads, state, params):
      grads, norm = optim.gradient_norm(config, grads)
      return tx.update(grads, state, params, norm=norm)

    with kernels.target(platform):
      return jax.jit(update)(grads, tx.init(params), params)

  jax.tree.map(np.testing.assert_array_equal, updated('gpu'), updated('cpu'))


def test_clipping_keeps_the_direction_and_bounds_the_norm():
  c = _config(name='sgd', schedule='constant', momentum=0.0, clip_norm=0.5)
  c.train.weight_decay, c.train.warmup_steps = 0.0, 0
  tx = optim.make(c)
  params = {'a': jnp.zeros(2), 'b': jnp.zeros(2)}
  for size, kept in ((10.0, 0.5), (0.1, 0.1)):
    grads = {'a': jnp.array([0.6, 0.0]) * size, 'b': jnp.array([0.0, 0.8]) *
             size}
    grads, norm = optim.gradient_norm(c, grads)
    updates, _ = tx.update(grads, tx.init(params), params, norm=norm)
    for name, g in grads.items():
      np.testing.assert_allclose(
          updates[name], -RATE * np.asarray(g, np.float64) * kept / size,
          rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize('momentum', [0.0, 0.5, 0.95])
def test_muon_is_that_of_optax_with_this_momentum(momentum):
  c = _config(name='muon', schedule='constant', momentum=momentum)
  c.train.weight_decay, c.train.warmup_steps = 0.0, 0
  ours = optim.make(c)
  theirs = optax.contrib.muon(
      RATE, beta=momentum, eps=c.train.eps, adam_b1=c.train.b1,
      adam_b2=c.train.b2)
  rng = np.random.default_rng(0)
  params = {'kernel': jnp.ones((4, 4)), 'bias': jnp.ones(4)}
  states = [ours.init(params), theirs.init(params)]
  for _ in range(3):
    grads = {name: jnp.asarray(rng.normal(size=p.shape), jnp.float32)
             for name, p in params.items()}
    found = []
    for i, tx in enumerate((ours, theirs)):
      updates, states[i] = tx.update(grads, states[i], params)
      found.append(updates)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(
        a, b, rtol=1e-5, atol=1e-7), *found)


@pytest.mark.parametrize('name', ['adamw', 'lion', 'muon'])
def test_decay_is_of_matrices_and_tables_only(name):
  """With zero gradients the update is -rate * decay * weight."""
  c = _config(name=name, schedule='constant')
  c.train.weight_decay, c.train.warmup_steps = 0.25, 0
  tx = optim.make(c)
  shapes = {'kernel': (2, 2), 'heads': (2, 2, 2), 'bias': (2,), 'scale': (2,)}
  params = {name: jnp.full(shape, 4.0) for name, shape in shapes.items()}
  updates, _ = tx.update(
      jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
  for name, update in updates.items():
    decayed = name in ('kernel', 'heads')
    np.testing.assert_allclose(
        update, -RATE * 0.25 * 4 if decayed else 0, rtol=1e-6)


@pytest.mark.full
def test_average_of_the_weights():
  """After n updates, ema_n = d^n p_0 + (1 - d) sum_i d^(n - i) p_i, i >= 1."""
  c = _config(ema=0.75)
  p = small.make(c)
  state = p.init()
  compiled = p.compile_train()
  trace = [jax.device_get(state.params)]
  batch = small.batch(p.objective.task, 4, 24, lead=(1,))
  for _ in range(3):
    state, _ = compiled(state, batch, p.put_given())
    trace.append(jax.device_get(state.params))

  def expected(*x):
    total = 0.75**3 * np.asarray(x[0], np.float64)
    for i in (1, 2, 3):
      total = total + 0.25 * 0.75**(3 - i) * np.asarray(x[i], np.float64)
    return total

  want = jax.tree.map(expected, *trace)
  error = jax.tree.map(
      lambda a, b: np.linalg.norm(np.asarray(a, np.float64) - b)
      <= 1e-5 * np.linalg.norm(b), jax.device_get(state.ema), want)
  assert all(jax.tree.leaves(error))
  moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), state.ema,
                       state.params)
  assert any(jax.tree.leaves(moved))


def _steps(groups, count=3, **optim_fields):
  """Returns two {name: array}: parameters before and after `count` updates."""
  c = small.config('transformer', 'listops', learning_rate=0.1, warmup_steps=0)
  c.optim.update({'groups': groups, 'schedule': 'constant', **optim_fields})
  p = small.make(c)
  state, compiled = p.init(), p.compile_train()
  before = optim.named(jax.device_get(state.params))
  for seed in range(count):
    batch = small.batch(p.objective.task, 4, 24, seed=seed, lead=(1,))
    state, _ = compiled(state, batch, p.put_given())
  return before, optim.named(jax.device_get(state.params))


@pytest.mark.full
def test_frozen_parameters_keep_their_bytes():
  before, after = _steps((('encoder/.*', None), ('.*', {})))
  for name in before:
    same = before[name].tobytes() == after[name].tobytes()
    assert same == name.startswith('encoder/'), name


@pytest.mark.full
def test_a_group_has_its_own_rate_and_decay():
  """Plain SGD's first update is -rate * (g + decay * w) in each group."""
  plain = dict(name='sgd', momentum=0.0)
  rest = dict(learning_rate=0.1, weight_decay=0.0)
  before, one = _steps((('.*', rest),), 1, **plain)
  _, two = _steps(((r'head/.*kernel', dict(rest, learning_rate=0.3)),
                   (r'encoder/.*up/kernel', dict(rest, weight_decay=0.5)),
                   ('.*', rest)), 1, **plain)
  for name, start in before.items():
    moved = [np.asarray(x[name], np.float64) - start for x in (one, two)]
    expected = moved[0]
    if name.startswith('head/') and name.endswith('kernel'):
      expected = 3 * moved[0]
    elif name.endswith('up/kernel'):
      expected = moved[0] - 0.1 * 0.5 * start
    assert np.linalg.norm(moved[1] - expected) <= 1e-5 * (
        np.linalg.norm(expected) + np.linalg.norm(start)), name


@pytest.mark.parametrize('groups,words', [
    ((('encoder/.*', {}),), ['head/hidden_0/', "('.*', {})"]),
    ((('nothing', {}), ('.*', {})), ["'nothing'", 'encoder/block_0']),
    ((('kernel', {}), ('.*', {})), ["'kernel'", 'no array']),
    ((('encoder/.*', None), ('.*', None)), ['freezes every parameter']),
])
def test_bad_groups_are_refused_by_name(groups, words):
  with pytest.raises(UserError) as error:
    _steps(groups, 0)
  for word in ['config.optim.groups', *words]:
    assert word in str(error.value)


def _s5(groups=(), **train):
  c = small.config('s5', 'listops', learning_rate=0.1, weight_decay=0.5,
                   warmup_steps=0, **train)
  c.model.state_dim, c.model.blocks = 8, 2
  c.optim.update(groups=groups, schedule='constant', name='sgd', momentum=0.0)
  return c


# Published variants of S5: (fields of config.train, config.optim.groups,
# {parameter: (learning rate, weight decay)}).
_LAMBDA = {name: (0.01, 0.0) for name in (
    'lambda_real', 'lambda_imaginary', 'log_step')}
_SLOW = ('lambda_real', 'lambda_imaginary', 'log_step')
_VARIANTS = {
    'standard': ({}, (), {**_LAMBDA, 'b': (0.01, 0.0)}),
    'standard, dt_global': (
        {'ssm_parameters': ('lambda_real', 'lambda_imaginary', 'b')}, (),
        {**_LAMBDA, 'b': (0.01, 0.0), 'log_step': (0.1, 0.0)}),
    'BandCdecay': (
        {'ssm_parameters': _SLOW},
        (('.*/mixer/b', {'learning_rate': 0.01}), ('.*', {})),
        {**_LAMBDA, 'b': (0.01, 0.5)}),
    'BfastandCdecay': (
        {'ssm_parameters': _SLOW}, (), {**_LAMBDA, 'b': (0.1, 0.5)})}


@pytest.mark.parametrize('variant', _VARIANTS)
def test_the_groups_of_s5_can_be_expressed(variant):
  """One update of plain gradient descent is -rate * (g + decay * w)."""
  train, groups, expected = _VARIANTS[variant]
  p = small.make(_s5(groups, ssm_learning_rate=0.01, ssm_weight_decay=0.0,
                     **train))
  params = small.random_params(p)
  grads = small.random_params(p, seed=1)
  tx = optim.make(p.config)
  grads, norm = optim.gradient_norm(p.config, grads)
  updates, _ = tx.update(grads, tx.init(params), params, norm=norm)
  moved, starts, slopes = (
      optim.named(jax.tree.map(np.float64, tree))
      for tree in (updates, params, grads))
  seen = set()
  for name, start in starts.items():
    last = name.rpartition('/')[2]
    decays = start.ndim > 1 and 'bias' not in last
    rate, decay = expected.get(
        last if '/mixer/' in name else '', (0.1, 0.5 * decays))
    seen.add(last)
    np.testing.assert_allclose(
        moved[name], -rate * (slopes[name] + decay * start), rtol=1e-5,
        atol=1e-7, err_msg=name)
  assert set(expected) <= seen


@pytest.mark.parametrize('model', [
    name for name in models.names() if hasattr(
        models.module(name), 'PARAM_GROUPS')])
def test_each_declared_parameter_exists(model):
  names = optim.named(
      small.make(small.config(model, 'listops')).state_shape.params)
  for parameter in models.module(model).PARAM_GROUPS:
    assert f'encoder/block_0/mixer/{parameter}' in names
