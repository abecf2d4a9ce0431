"""Simulates Hopper kernels with packed operands, states, SiLU and biases.

Results are compared with float64, as for the TPU kernels. The simulator stops
at a data race.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip('jax.experimental.pallas.mosaic_gpu')

from lra import kernels
from lra.kernels import hopper_call
from lra.kernels.lightning import pallas_gpu as lightning
from tests.helpers import packed
from tests.helpers.gradients import hopper_simulator

full = pytest.mark.full
Call = functools.partial(packed.Call, dtype='bfloat16')
# (call, number of parts of L; None: the kernels choose)
CALLS = [
  (Call('linear', 'elu1', 2, 70, 2, 64), None),
  (Call('lightning', 'silu', 1, 140, 2, 64), None),
  *(pytest.param(*x, marks=full) for x in (
    (Call('linear', 'elu1', 2, 150, 3, 128, seed=1), 2),
    (Call('linear', 'relu', 1, 330, 2, 64, seed=2), 5),
    (Call('simpletron', '', 2, 200, 2, 64), 2),
    (Call('simpletron', '', 1, 65, 2, 128, seed=1), None),
    (Call('lightning', 'silu', 1, 300, 2, 128), None),
    (Call('lightning', 'silu', 1, 200, 2, 128), 2),
    (Call('lightning', 'silu', 1, 450, 2, 64, seed=1), 2),
    (Call('lightning', 'identity', 2, 65, 3, 64), None))),
]


@pytest.fixture
def run():
  """Returns `packed.run` with an interpreter that stops at a data race."""
  params = hopper_simulator(detect_races=True)
  return functools.partial(packed.run, kernel='pallas_gpu', interpret=params)


@pytest.mark.parametrize('call, parts', CALLS, ids=str)
def test_packed_against_float64(call, parts, run, monkeypatch):
  if parts is not None:
    monkeypatch.setattr(hopper_call, 'splits', lambda *_: parts)
    monkeypatch.setattr(lightning, '_parts', lambda *_: parts)
  packed.check(call, run(call))


@full
@pytest.mark.parametrize('call', [
  Call('linear', 'elu1', 1, 90, 2, 64), Call('simpletron', '', 1, 70, 2, 128)],
  ids=str)
def test_packed_is_what_apart_is(call, run):
  """Packed operands and separate q, k, v give bit-identical results."""
  got, want = run(call), run(call, apart=True)
  del got['dbias']
  assert got.keys() == want.keys()
  for name, x in got.items():
    np.testing.assert_array_equal(x, want[name], name)


@full
def test_a_batch_of_calls_is_what_single_calls_are():
  """Under vmap, each call gives what it gives alone.

  The gradient kernel updates an array in place, which vmap must respect.
  """
  call = Call('linear', 'elu1', 2, 70, 2, 64)
  (*qkv, do), mask, *_ = call.arrays()
  # All share the first mask, so tokens masked in the second must not be NaN.
  qkv, do = jnp.nan_to_num(jnp.stack(qkv, axis=2)), jnp.nan_to_num(do)
  attend = functools.partial(
    kernels.linear_attention_packed, mask=mask[:1], kernel='pallas_gpu')

  def gradient(x, do):
    return jax.vjp(attend, x[None])[1](do[None])[0][0]

  with kernels.target('gpu', hopper_simulator(detect_races=True)):
    got = jax.vmap(gradient)(qkv, do)
    want = [gradient(x, y) for x, y in zip(qkv, do, strict=True)]
  np.testing.assert_array_equal(got, jnp.stack(want))


