"""Every config on every task it names: found by globbing, so a new model is
tested the moment it exists."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from configs import base
from lra import models, tasks
from lra.training import step

MODELS = sorted(
    p.stem for p in small.CONFIGS.glob('*.py')
    if p.stem not in ('__init__', 'base'))
TASKS = sorted(tasks.TASKS)
# Tasks that differ in what a model sees: classes, vocabulary, pairs.
KINDS = ('listops', 'text', 'retrieval')


@functools.cache
def _real(model, task, protocol='simpletron'):
  """The unshrunk config, as a user gets it."""
  import importlib
  return importlib.import_module(f'configs.{model}').get_config(
      f'{task},protocol={protocol}')


def test_every_model_has_a_config_and_every_config_a_model():
  used = {_real(m, 'listops').model.name for m in MODELS}
  assert used == set(models.names())


@pytest.mark.parametrize('protocol', base.PROTOCOLS)
@pytest.mark.parametrize('model', MODELS)
def test_full_size_config_has_a_program_for_every_task(model, protocol):
  for task in TASKS:
    shape = small.make(_real(model, task, protocol)).state_shape
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(shape.params))


def _gradient(model, kind, **kwargs):
  c = small.config(model, kind, batch_size=4, microbatch_size=2)
  for key, value in kwargs.items():
    if key == 'remat':
      c.encoder.remat = value
    elif key != 'devices':
      c[key] = value
  p = small.make(c, kwargs.get('devices', 1))
  state = p.init()
  batch = small.batch(p.task, 2, 24, lead=(2,))
  f = jax.jit(functools.partial(step.batch_gradient, p.model))
  with jax.set_mesh(p.mesh):
    grads, variables, sums = f(
        state.params, state.variables,
        jax.device_put(batch, p.batch_sharding(micro=True)),
        jax.random.key(c.seed))
  assert jax.tree.structure(variables) == jax.tree.structure(state.variables)
  return p, jax.device_get(grads), {k: float(v) for k, v in sums.items()}


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('model', MODELS)
def test_forward_and_backward(model, kind):
  """With bf16, remat, two devices and another seed where the task allows."""
  options = {
      'listops': {}, 'text': {'dtype': 'bfloat16', 'remat': True},
      'retrieval': {'devices': 2, 'seed': 1}}[kind]
  p, grads, sums = _gradient(model, kind, **options)
  assert sums['weight'] == 4
  # A fresh model knows nothing: its loss is near that of a uniform guess.
  assert 0.2 < sums['loss'] / 4 / np.log(p.task.num_classes) < 5
  for path, g in jax.tree_util.tree_leaves_with_path(grads):
    assert np.isfinite(g).all(), path
  total = sum(float(np.abs(g).sum()) for g in jax.tree.leaves(grads))
  assert total > 0
