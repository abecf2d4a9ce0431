"""Tests that batch sizes suit the hardware and do not change results."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from lra.core import files, machine
from lra.core.errors import UserError
from lra.run import sizes, train, trainer
from tests.helpers import same_run, small


class Mesh:
  """Stands in for a mesh of devices that this machine lacks."""

  def __init__(self, platform, data=1, fsdp=1):
    self.shape = {'data': data, 'fsdp': fsdp}
    device = type('Device', (), {'platform': platform})
    self.devices = np.array([device] * data * fsdp)


def _config(**train):
  c = small.config('simpletron', 'listops')
  c.train.update({'batch_size': 32, 'microbatch_size': 0, 'eval_batch_size': 0,
                  'cpu_microbatch_size': 8, 'cpu_eval_batch_size': 20,
                  **train})
  return c


@pytest.mark.parametrize('platform, share, changes, want', [
    ('cpu', 1, {}, (8, 20)),
    ('gpu', 1, {}, (32, 256)),
    ('tpu', 4, {}, (32, 256)),
    ('gpu', 1, {'microbatch_size': 4, 'eval_batch_size': 6}, (4, 6)),
    ('cpu', 1, {'batch_size': 20}, (5, 20)),  # 8 does not divide 20
    ('cpu', 4, {'cpu_microbatch_size': 2, 'cpu_eval_batch_size': 6}, (4, 4)),
    ('gpu', 3, {'batch_size': 33}, (33, 255))])
def test_sizes_that_are_tried_first(platform, share, changes, want):
  got = sizes.wanted(_config(**changes), Mesh(platform, share))
  assert dataclasses.astuple(got) == want


def test_a_batch_that_devices_cannot_share_is_refused():
  with pytest.raises(UserError, match='config.train.batch_size=32 .* 5'):
    sizes.wanted(_config(), Mesh('gpu', 5))


def test_a_run_keeps_its_sizes_on_the_same_device_only():
  before = {'device': machine.device_name(), 'microbatch_size': 16,
            'eval_batch_size': 64}
  kept = sizes.wanted(_config(), Mesh('gpu'), before)
  assert kept == sizes.Sizes(16, 64)
  before['device'] = 'another'
  assert sizes.wanted(_config(), Mesh('gpu'), before) == sizes.Sizes(32, 256)


def test_sizes_are_halved_until_the_program_fits(monkeypatch):
  monkeypatch.setattr(sizes, 'needs', lambda compiled: 10 * compiled)
  fit = lambda limit, share=1, size=32: sizes.fitting(
      lambda n: n, size, share, limit, 'Training')
  assert fit(math.inf) == (32, 32)
  assert fit(100) == (8, 8)
  assert fit(0) == (1, 1)  # the smallest size is kept even if it does not fit
  assert fit(0, share=4) == (4, 4)
  assert fit(0, size=12) == (3, 3)

  def compile_at(size):
    if size > 16:
      raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: too much')
    return size

  assert sizes.fitting(compile_at, 64, 1, math.inf, 'Training') == (16, 16)
  with pytest.raises(jax.errors.JaxRuntimeError):
    sizes.fitting(compile_at, 31, 1, math.inf, 'Training')


@pytest.mark.full
def test_a_program_is_compiled_at_the_size_that_fits(monkeypatch):
  p = small.make(_config(cpu_microbatch_size=32))
  needed = sizes.needs(p.sized(microbatch=8).compile_train())
  monkeypatch.setattr(sizes, 'budget', lambda mesh: needed)
  made, compiled = p.fit_train()
  assert made.sizes.microbatch == 8
  assert sizes.needs(compiled) == needed
  named = small.make(_config(microbatch_size=32))
  assert named.fit_train()[0].sizes.microbatch == 32


@pytest.mark.full
def test_a_run_of_an_accelerator_is_that_of_a_cpu(
    mini_data, tmp_path, monkeypatch):
  """Whole batches and microbatches give equal runs up to rounding.

  Dropout is on, and whole batches are prefetched.
  """
  config = same_run.config(mini_data)
  config.train.update({'batch_size': 16, 'microbatch_size': 0,
                       'eval_batch_size': 0, 'cpu_microbatch_size': 4})
  config.encoder.dropout = 0.2
  one = train.train(small.experiment(config, tmp_path / 'cpu'))
  assert one.microbatch_size == 4
  for module in (sizes, trainer):
    monkeypatch.setattr(module, 'is_cpu', lambda mesh: False)
  other = train.train(small.experiment(config, tmp_path / 'accelerator'))
  assert other.microbatch_size == config.train.batch_size
  assert other.eval_batch_size == sizes.EVAL_BATCH
  assert other.draws == one.draws == 'example'
  kept = files.read_json(tmp_path / 'accelerator' / 'env.json')
  assert kept['microbatch_size'] == config.train.batch_size
  assert other.val.loss == pytest.approx(one.val.loss, rel=1e-4)
  assert other.test.loss == pytest.approx(one.test.loss, rel=1e-4)


def _with_memory(monkeypatch, count):
  monkeypatch.setattr(machine, 'memory', lambda: count)


def _state_bytes(program):
  shapes = program.state_shape
  return sum(math.prod(x.shape) * x.dtype.itemsize
             for x in jax.tree.leaves((shapes, shapes.params)))


def test_batches(monkeypatch):
  c = small.config('simpletron', 'text', eval_batch_size=64)
  least = 64 * 24 * 16 * 2  # examples, tokens, width, bytes
  _with_memory(monkeypatch, least)
  small.make(c)
  _with_memory(monkeypatch, least - 1)
  with pytest.raises(UserError, match='config.train.eval_batch_size=64 .*GiB'):
    small.make(c)
  c = small.config('simpletron', 'retrieval', eval_batch_size=32)
  with pytest.raises(UserError, match='config.train.eval_batch_size=32 .*GiB'):
    small.make(c)  # 32 pairs are 64 documents


def test_states(monkeypatch):
  c = small.config('super', 'listops', eval_batch_size=4)
  needed = _state_bytes(small.make(c))
  _with_memory(monkeypatch, needed)
  assert small.make(c).state_shape
  _with_memory(monkeypatch, needed - 1)
  with pytest.raises(UserError, match='config.encoder.width=16 .*alignment'):
    assert small.make(c).state_shape


def test_compiled_steps(monkeypatch):
  program = small.make(small.config('simpletron', 'listops'))
  needed = _state_bytes(program)
  _with_memory(monkeypatch, needed // 4)  # room for the parameters only
  with pytest.raises(jax.errors.JaxRuntimeError) as e:
    program.compile_eval()
  assert machine.out_of_memory(e.value)
  _with_memory(monkeypatch, 1 << 30)
  program.compile_eval()
