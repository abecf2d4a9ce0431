"""What cannot fit is refused: with little memory, where much is not at hand."""

import math

import jax
import pytest

from lra.errors import UserError
from lra.system import machine
from lra.training import fits, sizes
from tests.helpers import small


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
    small.make(c)  # pairs


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
  _with_memory(monkeypatch, needed // 4)  # parameters and nothing else
  with pytest.raises(jax.errors.JaxRuntimeError) as e:
    program.compile_eval()
  assert machine.out_of_memory(e.value)
  _with_memory(monkeypatch, 1 << 30)
  program.compile_eval()


def test_other_devices_speak_for_themselves(monkeypatch):
  class Mesh:
    class devices:  # noqa: N801
      flat = [type('Device', (), {'platform': 'tpu'})]

  _with_memory(monkeypatch, 0)
  fits.check_batches(
      small.config('simpletron', 'text'), Mesh, sizes.Sizes(4, 4))


def test_memory_of_this_machine():
  assert 1 << 28 < machine.memory() < 1 << 50
