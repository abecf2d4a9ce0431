"""Real configs shrunk until a test can afford them."""

import importlib
import pathlib

import numpy as np

from lra import tasks
from lra.training import program

CONFIGS = pathlib.Path(__file__).parent.parent / 'configs'


def config(model: str, arg: str, **train):
  """`configs/<model>.py:<arg>` with one narrow block and short sequences."""
  c = importlib.import_module(f'configs.{model}').get_config(arg)
  c.dtype = 'float32'
  c.seq_len = 24
  c.encoder.num_layers = 1
  c.encoder.width = c.encoder.mlp_width = 16
  c.train.batch_size = c.train.microbatch_size = c.train.eval_batch_size = 4
  for field, value in (('num_heads', 2), ('qkv_width', 16)):
    if field in c.model:
      c.model[field] = value
  c.train.update(train)
  return c


def batch(task: tasks.Task, rows: int, length: int, seed=0, lead=()):
  """Random ids with ragged padding, labels and unit weights."""
  rng = np.random.default_rng(seed)
  shape = (*lead, rows, *((2,) if task.dual else ()), length)
  tokens = rng.integers(1, task.vocab_size, shape)
  lengths = rng.integers(length // 2, length + 1, (*shape[:-1], 1))
  tokens = np.where(np.arange(length) < lengths, tokens, 0)
  return {'tokens': tokens.astype(np.int16),
          'labels': rng.integers(
              0, task.num_classes, (*lead, rows)).astype(np.int32),
          'weights': np.ones((*lead, rows), np.float32)}


def make(c, devices=1) -> program.Program:
  """The program of a config on the first `devices` devices."""
  import jax
  return program.make(c, jax.devices()[:devices])
