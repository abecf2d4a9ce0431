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
from lra.kernels import hopper_call, reference
from lra.kernels.hopper import Columns
from lra.kernels.lightning import pallas_gpu as lightning
from lra.kernels.linear import features
from lra.kernels.linear import pallas_gpu as linear_gpu
from tests.helpers import errors, packed
from tests.helpers.errors import relative_rms

full = pytest.mark.full
Call = functools.partial(packed.Call, dtype='bfloat16')
# (call, number of parts of L; None: the kernels choose)
CALLS = [
  (Call('linear', 'elu1', 2, 70, 2, 64), None),
  (Call('lightning', 'silu', 1, 140, 2, 64), None),
  pytest.param(Call('linear', 'elu1', 2, 150, 3, 128, seed=1), 2, marks=full),
  pytest.param(Call('linear', 'relu', 1, 330, 2, 64, seed=2), 5, marks=full),
  pytest.param(Call('simpletron', '', 2, 200, 2, 64), 2, marks=full),
  pytest.param(Call('simpletron', '', 1, 65, 2, 128, seed=1), None, marks=full),
  pytest.param(Call('lightning', 'silu', 1, 300, 2, 128), None, marks=full),
  pytest.param(Call('lightning', 'silu', 1, 200, 2, 128), 2, marks=full),
  pytest.param(Call('lightning', 'silu', 1, 450, 2, 64, seed=1), 2, marks=full),
  pytest.param(Call('lightning', 'identity', 2, 65, 3, 64), None, marks=full),
]


@pytest.fixture
def simulator():
  """Returns parameters with which the interpreter stops at a data race."""
  try:
    with kernels.target('gpu', 'any'):
      hopper_call.supported((1, 1, 1, 64), jnp.bfloat16)
  except NotImplementedError as reason:
    pytest.skip(str(reason))
  from jax.experimental.pallas import mosaic_gpu as plgpu

  return plgpu.InterpretGPUParams(detect_races=True)


@pytest.mark.parametrize('call, parts', CALLS, ids=str)
def test_packed_against_float64(call, parts, simulator, monkeypatch):
  if parts is not None:
    monkeypatch.setattr(hopper_call, 'splits', lambda *_: parts)
    monkeypatch.setattr(lightning, '_parts', lambda *_: parts)
  _check(call, _run(call, simulator))


def _run(call, simulator, apart=False, state=True):
  """Returns simulated results and all gradients: {name: array}."""
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
  want = packed.expected(call)
  assert got.keys() == want.keys()
  found = {n: relative_rms(got[n], want[n]) for n in want}
  limit = errors.bound('dq', 'bfloat16')
  assert all(error < limit for error in found.values()), found  # NaN fails
  off = ~np.asarray(call.arrays()[1])
  for name in ('out', 'dq', 'dk', 'dv'):
    assert not got[name][off].any(), name


@pytest.mark.full
@pytest.mark.parametrize(
  'call',
  [Call('linear', 'elu1', 1, 90, 2, 64), Call('simpletron', '', 1, 70, 2, 128)],
  ids=str,
)
def test_packed_is_what_apart_is(call, simulator):
  """Packed operands and separate q, k, v give bit-identical results."""
  got = _run(call, simulator)
  del got['dbias']
  want = _run(call, simulator, apart=True)
  assert got.keys() == want.keys()
  for name, x in got.items():
    np.testing.assert_array_equal(x, want[name], name)


@pytest.mark.full
def test_a_batch_of_calls_is_what_single_calls_are(simulator):
  """Under vmap, each call gives what it gives alone.

  The gradient kernel updates an array in place, which vmap must respect.
  """
  call = Call('linear', 'elu1', 2, 70, 2, 64)
  (*qkv, do), mask, *_ = call.arrays()
  # All share the first mask, so tokens masked in the second must not be NaN.
  qkv, do = jnp.nan_to_num(jnp.stack(qkv, axis=2)), jnp.nan_to_num(do)
  attend = functools.partial(
    kernels.linear_attention_packed, mask=mask[:1], kernel='pallas_gpu'
  )

  def gradient(x, do):
    return jax.vjp(attend, x[None])[1](do[None])[0][0]

  with kernels.target('gpu', interpret=simulator):
    got = jax.vmap(gradient)(qkv, do)
    want = [gradient(x, y) for x, y in zip(qkv, do, strict=True)]
  np.testing.assert_array_equal(got, jnp.stack(want))


@pytest.mark.full
def test_a_state_makes_two_calls_one(simulator):
  """Two calls linked by a state equal one call on all tokens."""
  call, cut = Call('linear', 'elu1', 1, 130, 2, 64), 70
  (q, k, v, do), mask, *_ = call.arrays()
  attend = functools.partial(
    kernels.linear_attention, kernel='pallas_gpu', return_state=True
  )

  def later(k0, v0, q, k, v):
    _, state = attend(q[:, :cut], k0, v0, mask=mask[:, :cut])
    late = q[:, cut:], k, v
    return attend(*late, mask=mask[:, cut:], initial_state=state)[0]

  with kernels.target('gpu', interpret=simulator):
    args = k[:, :cut], v[:, :cut], q, k[:, cut:], v[:, cut:]
    out, pull = jax.vjp(later, *args)
    dk0, dv0, dq, dk, dv = pull(do[:, cut:])
  # The loss ignores the outputs of the earlier tokens.
  do = np.asarray(do, np.float64).copy()
  do[:, :cut] = 0
  want = reference.linear(q, k, v, mask, do)[:4]
  got = out, dq[:, cut:], dk, dv, dk0, dv0
  parts = [x[:, cut:] for x in want] + [x[:, :cut] for x in want[2:]]
  for x, y in zip(got, parts, strict=True):
    assert relative_rms(np.float64(x), y) < errors.bound('dq', 'bfloat16')


def _swap_keys_and_values(monkeypatch):
  thirds = hopper_call._thirds
  swapped = lambda *args: [thirds(*args)[i] for i in (0, 2, 1)]
  monkeypatch.setattr(hopper_call, '_thirds', swapped)


def _forget_the_derivative(monkeypatch):
  monkeypatch.setattr(features, 'silu_slope', lambda x: 1.0 + 0.0 * x)


def _sum_nothing(monkeypatch):
  add = lambda self, sums, *tiles, zero=0: sums
  monkeypatch.setattr(Columns, 'add', add)


def _sum_the_last_chunk_alone(monkeypatch):
  store = Columns.store

  def store_in_one_place(self, sums, targets, where):
    store(self, sums, targets, (*where[:2], where[2] * 0))

  monkeypatch.setattr(Columns, 'store', store_in_one_place)


def _forget_the_state(monkeypatch):
  monkeypatch.setattr(linear_gpu, '_with_state', lambda sums, *_: sums)


@pytest.mark.full
@pytest.mark.parametrize(
  'fault, op, width',
  [
    (_swap_keys_and_values, 'linear', 64),
    (_swap_keys_and_values, 'lightning', 64),
    (_forget_the_derivative, 'lightning', 64),
    (_sum_nothing, 'linear', 64),
    (_sum_nothing, 'lightning', 64),
    (_sum_the_last_chunk_alone, 'lightning', 128),
    (_forget_the_state, 'linear', 64),
  ],
)
def test_a_fault_is_found(fault, op, width, simulator, monkeypatch):
  form = {'linear': 'elu1', 'lightning': 'silu'}[op]
  call = Call(op, form, 1, 70, 2, width)
  _check(call, _run(call, simulator))
  fault(monkeypatch)
  with pytest.raises(AssertionError):
    _check(call, _run(call, simulator))
