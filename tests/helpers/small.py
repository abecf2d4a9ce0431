"""Makes small versions of real configs, and inputs for quick tests."""

import importlib
import pathlib

import jax
import numpy as np

from lra.core import tasks
from lra.run import program
from lra.run.experiment import Experiment, resolve

CONFIGS = pathlib.Path(__file__).parents[2] / 'configs'


def config(model: str, arg: str, **train):
  """Returns `configs/<model>.py:<arg>` with one narrow block and short inputs.

  Probe tasks keep their full length, since the question may be at the end.
  """
  c = importlib.import_module(f'lra.configs.{model}').get_config(arg)
  c.dtype = 'float32'
  c.seq_len = 0 if tasks.get(c.task).probe else 24
  c.encoder.num_layers = 1
  c.encoder.width = c.encoder.mlp_width = 16
  c.train.batch_size = c.train.microbatch_size = c.train.eval_batch_size = 4
  for field, value in (('num_heads', 2), ('qkv_width', 16)):
    if field in c.model:
      c.model[field] = value
  c.train.update(train)
  if c.encoder.norm == 'batch' and c.train.microbatch_size % (
      c.encoder.norm_examples or c.train.batch_size):
    c.encoder.norm_examples = c.train.microbatch_size
  return c.copy_and_resolve_references()


def batch(task: tasks.Task, rows: int, length: int, seed=0, lead=()):
  """Returns random ids with ragged padding, labels and unit weights.

  With leading axes `lead`, these are the microbatches of a training step.
  """
  rng = np.random.default_rng(seed)
  shape = (*lead, rows, *((2,) if task.dual else ()), length)
  tokens = rng.integers(1, task.vocab_size, shape)
  lengths = rng.integers(length // 2, length + 1, (*shape[:-1], 1))
  tokens = np.where(np.arange(length) < lengths, tokens, 0)
  made = {'tokens': tokens.astype(np.int16),
          'labels': rng.integers(
              0, task.num_classes, (*lead, rows)).astype(np.int32),
          'weights': np.ones((*lead, rows), np.float32)}
  if lead:
    place = np.arange(np.prod((*lead, rows)), dtype=np.int32)
    made['place'] = place.reshape(*lead, rows)
  return made


def experiment(c, folder=None) -> Experiment:
  """Returns the experiment of a config, with run directory `folder`."""
  return resolve(c, folder=folder)


def make(c, devices=1) -> program.Program:
  """Makes the program of a config on `devices` devices (None: all)."""
  return program.make(resolve(c), devices and jax.devices()[:devices])


def random_params(p: program.Program, seed=0):
  """Returns distinct float32 parameters, none of them 0 or 1."""
  rng = np.random.default_rng(seed)
  return jax.tree.map(
      lambda x: 0.3 * rng.standard_normal(x.shape, np.float32),
      p.state_shape.params)


def assert_close(got, want, tolerance=1e-5):
  """Asserts ||got - want|| <= tolerance ||want|| over two whole trees.

  A single entry whose terms cancel may have any relative error.
  """
  errors, sizes = [], []
  assert jax.tree.structure(got) == jax.tree.structure(want)
  for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    assert x.shape == y.shape
    errors.append(np.linalg.norm(x - y))
    sizes.append(np.linalg.norm(y))
  error, size = np.linalg.norm(errors), np.linalg.norm(sizes)
  assert error <= tolerance * size, (
      f'error {error:.2e} is {error / max(size, 1e-300):.1e} of {size:.2e}')
