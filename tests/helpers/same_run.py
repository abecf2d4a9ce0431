"""Trains a small model for six steps and checks that two runs are equal."""

import json

import jax
import numpy as np

from lra.core import files
from lra.run import rundir
from lra.run.checkpoint import Checkpoints
from tests.helpers import small

_CLOCK = ('seconds', 'examples_per_s')


def config(data_dir, **fields):
  """Returns a small config of SimpleTRON on `listops_mini` in `data_dir`."""
  c = small.config('simpletron', 'listops_mini', steps=6, eval_every=2,
                   log_every=2, **{'eval_batch_size': 200, **fields})
  c.data_dir = str(data_dir)
  return c


def experiment(data_dir, folder):
  """Returns an experiment that trains `config(data_dir)` in `folder`."""
  return small.experiment(config(data_dir), folder)


def metrics(folder):
  """Returns the lines of metrics.jsonl without measured times."""
  lines = [json.loads(x) for x in
           (folder / 'metrics.jsonl').read_text().splitlines()]
  return [{k: v for k, v in x.items() if k not in _CLOCK} for x in lines]


class Killed(BaseException):
  """Ends a run; no code of the program catches this exception."""


def kill_after(patch, lines):
  """Patches the log so that a run ends after `lines` lines of metrics."""
  log, left = rundir.RunDirectory.log, [lines]

  def log_and_die(self, **fields):
    log(self, **fields)
    left[0] -= 1
    if not left[0]:
      raise Killed

  patch.setattr(rundir.RunDirectory, 'log', log_and_die)


def check(a, b, config, devices):
  """Asserts that runs in folders a and b are equal bit for bit.

  It compares metrics, scores and the last state.
  """
  assert metrics(a) == metrics(b)
  ours, theirs = (files.read_json(x / 'result.json') for x in (a, b))
  for field in ('status', 'steps', 'best_step', 'val', 'test'):
    assert ours[field] == theirs[field], field
  like = small.make(config, devices).state_shape
  states = []
  for folder in (a, b):
    checkpoints = Checkpoints(folder / 'checkpoints')
    states.append(jax.device_get(checkpoints.restore_last(like)[0]))
    checkpoints.close()
  for x, y in zip(*map(jax.tree.leaves, states), strict=True):
    np.testing.assert_array_equal(x, y)


def records(folder):
  """Returns {file name: record}, without measured times and memory."""
  measured = ('seconds', 'per_s', 'bytes', 'runs_at_once')

  def kept(value):
    return {k: kept(v) for k, v in value.items() if not k.endswith(
        measured)} if isinstance(value, dict) else value
  return {p.name: kept(files.read_json(p))
          for p in (folder / 'results/runs').rglob('*.json')}
