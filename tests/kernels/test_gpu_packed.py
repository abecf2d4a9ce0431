"""Hopper kernels of packed operands, states, SiLU and biases, simulated.

Against float64, by the calls and equations of the TPU kernels' tests; races
are found.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_tpu_packed as packed

pytest.importorskip('jax.experimental.pallas.mosaic_gpu')

import kernels
from kernels import hopper
from kernels.lightning import pallas_gpu as lightning
from kernels.tools import errors
from kernels.tools.rms import relative_rms

full = pytest.mark.full
Call = functools.partial(packed.Call, dtype='bfloat16')
# (call, into how many parts L is cut; None = what the kernels choose)
CALLS = [
  (Call('linear', 'elu1', 2, 70, 2, 64), None),
  (Call('lightning', 'silu', 1, 140, 2, 64), None),
  pytest.param(Call('linear', 'elu1', 2, 150, 3, 128, seed=1), 2, marks=full),
  pytest.param(Call('linear', 'relu', 1, 330, 2, 64, seed=2), 5, marks=full),
  pytest.param(Call('simpletron', '', 2, 200, 2, 64), 2, marks=full),
  pytest.param(Call('simpletron', '', 1, 65, 2, 128, seed=1), None, marks=full),
  pytest.param(Call('lightning', 'silu', 1, 300, 2, 128), None, marks=full),
  pytest.param(Call('lightning', 'silu', 1, 450, 2, 64, seed=1), 2, marks=full),
  pytest.param(Call('lightning', 'identity', 2, 65, 3, 64), None, marks=full),
]


@pytest.fixture
def simulator():
  """The interpreter's parameters; it stops at a race."""
  try:
    hopper.supported((1, 1, 1, 64), jnp.bfloat16, 'any', False)
  except NotImplementedError as reason:
    pytest.skip(str(reason))
  from jax.experimental.pallas import mosaic_gpu as plgpu

  return plgpu.InterpretGPUParams(detect_races=True)


@pytest.mark.parametrize('call, parts', CALLS, ids=str)
def test_packed_against_float64(call, parts, simulator, monkeypatch):
  if parts is not None:
    monkeypatch.setattr(hopper, 'splits', lambda *_: parts)
    monkeypatch.setattr(lightning, '_parts', lambda *_: parts)
  _check(call, _run(call, simulator))


def _run(call, simulator, apart=False, state=True):
  """name -> array: results and gradients of everything, simulated."""
  (q, k, v, do), mask, before, last = call.arrays()
  name = f'{call.op}_attention' + ('' if apart else '_packed')
  more = {**call.options(), 'mask': mask, 'kernel': 'pallas_gpu'}
  if not state:
    before = last = None

  def attend(arrays, bias, before):
    named = {} if apart else {'bias': bias}
    return getattr(kernels, name)(
      *arrays, initial_state=before, return_state=state, **named, **more
    )

  @jax.jit
  def both(do, last, *args):
    out, pull = jax.vjp(attend, *args)
    return out, pull((do, last) if state else do)

  arrays = (q, k, v) if apart else (jnp.stack([q, k, v], axis=2),)
  bias = None if apart else jnp.ones((3, call.heads, call.width))
  with kernels.target('gpu', interpret=simulator):
    out, grads = both(do, last, arrays, bias, before)
  grads, dbias, dstate = grads
  if not apart:
    grads = [grads[0][:, :, i] for i in range(3)]
  got = dict(zip(('dq', 'dk', 'dv', 'dbias'), (*grads, dbias), strict=True))
  sums = {'dstate': dstate}
  got['out'], sums['state'] = out if state else (out, None)
  for key, x in sums.items():
    x = x if isinstance(x, tuple) else (x,)
    got |= {f'{key}{i}': y for i, y in enumerate(x)}
  return {n: np.float64(x) for n, x in got.items() if x is not None}


def _check(call, got):
  want = packed._expected(call)
  assert got.keys() == want.keys()
  found = {n: relative_rms(got[n], want[n]) for n in want}
  limit = errors.bound('dq', 'bfloat16')
  assert max(found.values()) < limit, found
  off = ~np.asarray(call.arrays()[1])
  for name in ('out', 'dq', 'dk', 'dv'):
    assert not got[name][off].any(), name
