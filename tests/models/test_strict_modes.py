"""Tests that JAX's strict modes neither change nor stop a model's program."""

import functools

import jax
import pytest

from lra import models
from lra.core import tasks
from lra.run.program import Program
from tests.helpers import small

MODELS = models.names()


def steps(config):
  """Returns the operations of a training and an evaluation step, in order."""
  p = small.make(config)
  return [list(operations(step))
          for step in (p.compile_train(), p.compile_eval())]


def operations(jaxpr):
  """Yields name, operands and results of each operation, nested ones too.

  The text of a jaxpr would depend on which of its parts were traced before.
  """
  jaxpr = getattr(jaxpr, 'jaxpr', jaxpr)
  for e in jaxpr.eqns:
    yield (e.primitive.name, *(getattr(v, 'val', None) is not None and str(v)
                               for v in e.invars),
           *(str(v.aval) for v in (*e.invars, *e.outvars)))
    for value in jax.tree.leaves(tuple(e.params.values()), is_leaf=is_jaxpr):
      if is_jaxpr(value):
        yield from operations(value)


def is_jaxpr(value):
  return hasattr(value, 'eqns') or hasattr(value, 'jaxpr')


def check(config):
  jax.clear_caches()  # forgets programs traced in the other mode
  with (jax.numpy_rank_promotion('raise'),
        jax.numpy_dtype_promotion('strict')):
    strict = steps(config)
  jax.clear_caches()
  assert all(strict) and strict == steps(config)


@pytest.fixture(autouse=True)
def traced(monkeypatch):
  """Lets `Program` trace its functions without compiling them."""
  def trace(self, function, *shapes, **_):
    with jax.set_mesh(self.mesh):
      return jax.make_jaxpr(function)(*shapes)

  monkeypatch.setattr(Program, '_compile', trace)


@functools.cache
def config(model, task='listops_mini', **changes):
  made = small.config(model, task, microbatch_size=2)
  made.encoder.dropout = 0.1
  made.update_from_flattened_dict(changes)
  return made


@pytest.mark.every(99, 37)
@pytest.mark.parametrize('model, dtype', [
    (model, ('float32', 'bfloat16')[i % 2])
    for i, model in enumerate(MODELS)] + [
    pytest.param(model, ('bfloat16', 'float32')[i % 2], marks=pytest.mark.full)
    for i, model in enumerate(MODELS)])
def test_every_model_is_the_same_under_strict_modes(model, dtype):
  check(config(model, dtype=dtype))


@pytest.mark.every(99, 30)
@pytest.mark.parametrize('model, task, changes', [
    *(('simpletron', task, {}) for task in tasks.TASKS),
    *(('transformer', 'listops_mini', {name: value}) for name, value in [
        ('encoder.positions', 'sinusoidal'), ('encoder.pooling', 'mean'),
        ('encoder.pooling', 'last'), ('encoder.pooling', 'cls'),
        ('encoder.remat', True), ('mask_padding', False),
        ('encoder.conv_width', 3), ('encoder.head_layers', 2),
        ('encoder.norm', 'scale'), ('encoder.norm', 'rms'),
        ('encoder.norm_place', 'post'), ('encoder.block', 'glu'),
        ('train.lengths', (8, 16)), ('optim.name', 'adam'),
        ('optim.name', 'sgd'), ('optim.name', 'lion'), ('optim.name', 'muon'),
        ('optim.clip_norm', 1.0)]),
    ('transformer', 'image_mini', {'encoder.inputs': 'values'}),
    ('transformer', 'retrieval_rfc_mini', {'encoder.head': 'nli'})])
def test_every_task_and_setting_is_the_same_under_strict_modes(
    model, task, changes):
  check(config(model, task, **changes))
