"""Tests accumulation, sharding and randomness of the training step."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.objectives import classification
from lra.run import program, step
from tests.helpers import small


def _batch(weighted, rows):
  batch = small.batch(small.tasks.get('listops'), 32, 24)
  batch['weights'] = (np.arange(32) < weighted).astype(np.float32)
  batch['place'] = np.arange(32, dtype=np.int32)
  return {k: v[:rows] for k, v in batch.items()}


@functools.cache
def _program(model, microbatch, devices, dropout, at):
  """Returns a program and its compiled gradient of a batch."""
  c = small.config(model, 'listops', batch_size=32,
                   microbatch_size=microbatch)
  c.encoder.dropout = dropout
  if 'attention_dropout' in c.model:
    c.model.attention_dropout = dropout
  if model == 'sinkhorn':
    c.model.block_size = 4  # one block alone cannot be sorted
  p = small.make(c, devices)
  return p, jax.jit(functools.partial(
      step.batch_gradient, p.model, p.objective, at=at))


@functools.cache
def _start(model):
  """Returns first parameters and constants; dropout does not change them."""
  state = _program(model, 32, 1, 0.0, ())[0].init()
  return jax.device_get((state.params, state.constants))


@functools.cache
def _gradient(model, microbatch, *, weighted=32, rows=32, devices=1,
              dropout=0.0, at=()):
  p, f = _program(model, microbatch, devices, dropout, at)
  params, constants = _start(model)
  batch = _batch(weighted, rows)
  if at:  # as `batches.train_batch` sorts
    order = np.argsort((batch['tokens'] > 0).sum(1), kind='stable')
    batch = {k: v[order] for k, v in batch.items()}
  micro = {k: v.reshape(-1, microbatch, *v.shape[1:])
           for k, v in batch.items()}
  with jax.set_mesh(p.mesh):
    grads, sums, _ = f(
        params, constants,
        jax.device_put(micro, p.batch_shardings(micro=True)),
        jax.random.key(0))
  return jax.device_get((grads, sums))


def _assert_equal(a, b):
  for x, y in zip(a, b, strict=True):  # gradients, then sums
    small.assert_close(x, y)


@pytest.mark.full
@pytest.mark.parametrize('model', ['simpletron', 'transformer'])
@pytest.mark.parametrize('microbatch', [8, 1])
def test_accumulation_equals_one_batch(model, microbatch):
  _assert_equal(_gradient(model, 32), _gradient(model, microbatch))


def test_filling_of_weight_zero_changes_nothing():
  _assert_equal(_gradient('simpletron', 32, weighted=8),
                _gradient('simpletron', 8, rows=8))


@pytest.mark.full
@pytest.mark.parametrize('model', ['simpletron', 'transformer'])
def test_four_devices_equal_one(model):
  _assert_equal(_gradient(model, 8), _gradient(model, 8, devices=4))


@pytest.mark.full
def test_sharded_step_reduces_gradients_and_gathers_nothing():
  c = small.config('transformer', 'listops', batch_size=8, microbatch_size=4)
  text = small.make(c, 4).compile_train().as_text()
  assert re.search(r'all-reduce(-start)?\(', text)
  assert 'all-gather' not in text
  assert 'all-to-all' not in text


@pytest.mark.parametrize('model', [
    'simpletron', *(pytest.param(model, marks=pytest.mark.full) for model in (
        'transformer', 'gqa', 'sinkhorn', 'performer', 'reformer'))])
def test_no_microbatch_length_or_device_changes_what_is_drawn(model):
  """Random draws do not depend on microbatches, lengths or devices."""
  whole = _gradient(model, 32, dropout=0.3)
  alone = _gradient(model, 32)
  assert not np.isclose(whole[1]['loss'], alone[1]['loss'], rtol=1e-4)
  # The second one sorts by length and cuts padding, for some examples at 16.
  others = [_gradient(model, 2, dropout=0.3, at=(16, 24)),
            _gradient(model, 8, dropout=0.3, devices=4)]
  for other in others:
    for x, y in zip(other, whole, strict=True):
      small.assert_close(x, y, 1e-6)


@pytest.mark.full
def test_dropout_differs_per_example_and_step():
  c = small.config('transformer', 'listops')
  c.encoder.dropout = 0.5
  p = small.make(c)
  state = p.init()
  one = small.batch(p.objective.task, 4, 24, lead=(1,))
  f = jax.jit(functools.partial(step.batch_gradient, p.model, p.objective))

  def loss(copies, key):
    batch = {k: np.concatenate([v] * copies) for k, v in one.items()}
    batch['place'] = np.arange(4 * copies, dtype=np.int32).reshape(-1, 4)
    sums = f(state.params, state.constants, batch, key)[1]
    return float(sums['loss'])

  key = jax.random.key(0)
  assert loss(1, key) == loss(1, key)
  assert loss(1, key) != loss(1, jax.random.key(1))
  # The same four examples come twice. If both copies got the same dropout mask,
  # the loss would just double.
  assert abs(loss(2, key) - 2 * loss(1, key)) > 1e-4


@pytest.mark.full
def test_each_step_of_a_run_has_its_own_dropout():
  c = small.config('transformer', 'listops')
  c.encoder.dropout = 0.5
  p = small.make(c)
  train, start = p.compile_train(), p.init()
  batch = small.batch(p.objective.task, 4, 24, lead=(1,))

  def loss(number):
    state = jax.tree.map(jnp.copy, start)  # the step may overwrite its input
    state = state.replace(step=state.step + number)
    state, _ = train(state, batch, p.put_given())
    return float(state.sums['loss'])

  assert loss(0) == loss(0)
  assert loss(0) != loss(1)


@pytest.mark.full
def test_a_grid_of_rates_and_decays_is_one_program(monkeypatch):
  """Rates, decays and seeds share one program; static settings need another."""
  monkeypatch.setattr(
      program.Program, '_compile', lambda _, function, *shapes, **options:
      jax.jit(function).lower(*shapes).as_text())

  def lowered(groups=(), seed=0, **train):
    c = small.config('simpletron', 'listops', **train)
    c.seed, c.optim.groups, c.optim.schedule = seed, groups, 'cosine'
    return small.make(c).compile_train()

  first = lowered()
  assert first == lowered(seed=7, learning_rate=0.5, weight_decay=0.0)
  assert first != lowered(warmup_steps=3)
  groups = (('head/.*', {'learning_rate': 0.5}), ('.*', {'weight_decay': 0.2}))
  assert lowered(groups) == lowered(
      (('head/.*', {'weight_decay': 0.1}), ('.*', {})), learning_rate=0.3)


@pytest.mark.every(4)
@pytest.mark.parametrize('sizes, clip, groups', [
    ({}, 0.0, ()), ({'data': 4}, 0.0, ()), ({'data': 2, 'fsdp': 2}, 1e-3, ()),
    ({}, 1e-3, (('head/.*', {}), ('.*', None)))])
def test_the_gradient_norm_is_that_of_the_whole_batch(sizes, clip, groups):
  """Compares the norm of trained parameters' gradients, before clipping."""
  c = small.config('transformer', 'listops', batch_size=32, microbatch_size=8)
  c.unlock()
  c.encoder.dropout, c.optim.clip_norm, c.optim.groups = 0.0, clip, groups
  c.mesh.update(sizes)
  p = small.make(c, 4 if sizes else 1)
  state, batch = p.init(), _batch(20, 32)
  params, constants = jax.device_get((state.params, state.constants))

  def loss(params):
    outputs = p.model.apply(
        {'params': params, **constants}, batch['tokens'], train=False)
    sums = p.objective.loss(outputs, batch)
    return sums['loss'] / sums['weight']

  grads = jax.jit(jax.grad(loss))(params)
  trained = grads['head'] if groups else grads
  want = np.sqrt(sum(np.sum(np.square(np.asarray(g, np.float64)))
                     for g in jax.tree.leaves(trained)))
  micro = {k: v.reshape(-1, 8, *v.shape[1:]) for k, v in batch.items()}
  _, norm = p.compile_train()(
      state, jax.device_put(micro, p.batch_shardings(micro=True)),
      p.put_given())
  assert want > 2e-3  # above `clip_norm`, so gradients are clipped
  np.testing.assert_allclose(float(norm), want, rtol=1e-5)


def test_weighted_loss_closed_form():
  logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
  loss, correct = classification.weighted_loss(
      logits, jnp.array([0, 2]), jnp.array([1.0, 2.0]))
  assert float(loss) == pytest.approx(
      -np.log(0.5) - 2 * np.log(0.1), rel=1e-5)
  assert float(correct) == 1.0


@pytest.mark.parametrize('task', ['listops', 'retrieval'])
def test_the_deviation_of_mixers_is_that_of_true_tokens(task):
  """Numpy computes it from the outputs that Flax captures."""
  c = small.config('simpletron', task)
  c.encoder.num_layers, c.encoder.pooling = 2, 'mean'
  p = small.make(c)
  batch = small.batch(small.tasks.get(task), 3, 24)
  state = p.init()
  got = step.mixer_std(p.model, p.objective, state.params, {}, batch)
  _, kept = p.model.apply(
      {'params': state.params}, p.objective.inputs(batch), train=False,
      capture_intermediates=lambda module, _: module.name == 'mixer')
  mask = np.asarray(batch['tokens']) > 0
  for layer in range(2):
    outputs = kept['intermediates']['encoder'][f'block_{layer}']['mixer'][
        '__call__']
    y = np.float64(outputs[0])  # both documents of a pair are in one batch
    want = np.std(y[mask.reshape(-1, mask.shape[-1])])
    small.assert_close(got[layer], want)
