"""Compares schedules, clipping and weight averages with closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from lra.run import optim, step
from tests.helpers import small

STEPS, WARMUP, RATE = 100, 10, 0.3


def _config(**fields):
  c = small.config('transformer', 'listops', steps=STEPS, warmup_steps=WARMUP,
                   learning_rate=RATE)
  c.optim.update(fields)
  return c


def _expected(name, s, final):
  """Returns the learning rate of update `s`, counted from 1."""
  if s <= WARMUP:
    return RATE * s / WARMUP
  done = (s - WARMUP) / (STEPS - WARMUP)
  return {
      'constant': RATE,
      'linear': RATE * (1 - done * (1 - final)),
      'cosine': RATE * (final + (1 - final) * (1 + np.cos(np.pi * done)) / 2),
  }[name]


@pytest.mark.parametrize('name', ['constant', 'linear', 'cosine'])
@pytest.mark.parametrize('final', [0.0, 0.1])
def test_schedule_grows_then_falls_as_its_formula(name, final):
  rate = optim.schedule(_config(schedule=name, final_fraction=final))
  for s in (1, 5, 10, 11, 37, 55, 99, 100):
    assert float(rate(s - 1)) == pytest.approx(
        _expected(name, s, final), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize('name', ['rsqrt', 'constant', 'linear', 'cosine'])
def test_the_first_update_moves(name):
  for warmup in (0, 1, WARMUP):
    c = _config(schedule=name)
    c.train.warmup_steps = warmup
    assert float(optim.schedule(c)(0)) > 0


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


@pytest.mark.parametrize('name', ['adam', 'sgd', 'lion', 'muon'])
def test_every_optimizer_lowers_a_loss(name):
  c = _config(name=name, schedule='constant')
  c.train.learning_rate, c.train.warmup_steps = 0.01, 0
  c.train.weight_decay = 0.0
  tx = optim.make(c)
  target = np.random.default_rng(0).normal(size=(4, 4))
  loss = lambda p: jnp.sum((p['kernel'] - target)**2) + jnp.sum(p['bias']**2)
  params = {'kernel': jnp.zeros((4, 4)), 'bias': jnp.ones(4)}
  state, first = tx.init(params), float(loss(params))

  @jax.jit
  def update(params, state):
    updates, state = tx.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state

  for _ in range(50):
    params, state = update(params, state)
  assert float(loss(params)) < 0.8 * first


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


def test_no_average_where_none_is_asked_for():
  assert small.make(_config()).init().ema is None


def test_sums_begin_empty():
  p = small.make(_config())
  assert set(step.zero_sums(p.objective)) == {'loss', 'correct', 'weight'}
