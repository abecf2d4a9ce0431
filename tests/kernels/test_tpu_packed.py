"""Simulates TPU kernels with packed operands, states, SiLU, biases, two cores.

Results are compared with float64. In the simulator unwritten memory is NaN, the
grid runs in random order, and a data race fails.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import dispatch, reference, tpu
from tests.helpers import errors
from tests.helpers.errors import relative_rms
from tests.helpers.gradients import no_races
from tests.helpers.packed import SCALE, Call, expected


def _cases(quick, others):
  """Returns `quick`, followed by `others`, which need --full."""
  return quick + [pytest.param(call, marks=pytest.mark.full) for call in others]


CALLS = _cases(
  [
    Call('linear', 'elu1', 2, 150, 2, 64),
    Call('lightning', 'silu', 2, 150, 2, 64, 'bfloat16'),
  ],
  [
    Call('linear', 'elu1', 2, 150, 2, 64, 'bfloat16', 1),
    Call('linear', 'relu', 1, 40, 3, 48),
    Call('linear', 'elu1', 2, 300, 1, 16, seed=1),
    Call('linear', 'elu1', 2, 300, 3, 48, 'bfloat16'),
    Call('linear', 'elu1', 2, 300, 4, 128, seed=2),
    Call('simpletron', '', 2, 200, 2, 64, 'bfloat16'),
    Call('simpletron', '', 1, 7, 1, 7),
    Call('lightning', 'silu', 2, 300, 3, 48),
    Call('lightning', 'identity', 2, 300, 4, 64, seed=1),
    Call('lightning', 'silu', 1, 5, 1, 1),
  ],
)
# One sequence, one group of heads; even, odd and ragged numbers of blocks.
ALONE = _cases(
  [Call('linear', 'elu1', 1, 384, 2, 64)],
  [
    Call('linear', 'elu1', 1, 300, 1, 48, 'bfloat16'),
    Call('simpletron', '', 1, 512, 1, 128, seed=1),
    Call('lightning', 'silu', 1, 500, 2, 64),
    Call('lightning', 'identity', 1, 300, 1, 32, seed=1),
    Call('lightning', 'silu', 1, 300, 2, 64, 'bfloat16'),
  ],
)


@pytest.mark.full
@pytest.mark.parametrize('call', CALLS, ids=str)
def test_packed_against_float64(call, monkeypatch):
  monkeypatch.setattr(tpu, 'MAX_ROWS', 128)
  _check(call, _run(call, packed=True))


@pytest.mark.full
@pytest.mark.parametrize('call', ALONE, ids=str)
def test_two_cores_against_float64(call, monkeypatch):
  """Two cores give the float64 results; each uses only its own memory."""
  monkeypatch.setattr(tpu, 'MAX_ROWS', 128)
  monkeypatch.setattr(tpu, 'cores', lambda: 2)
  grids = _recorded(monkeypatch)
  _check(call, _run(call, packed=True, cores=2))
  assert len(grids) == 4 and {2} == {grid[0] for grid in grids} - {1}


@pytest.mark.full
@pytest.mark.parametrize(
  'call',
  [
    Call('linear', 'elu1', 2, 150, 4, 64, 'bfloat16'),
    Call('simpletron', '', 2, 150, 3, 7),
    Call('lightning', 'silu', 2, 150, 4, 64, 'bfloat16'),
    Call('lightning', 'identity', 1, 150, 3, 40),
  ],
  ids=str,
)
def test_packed_is_what_apart_is(call):
  """Packed operands and separate q, k, v give bit-identical results."""
  got, want = _run(call, packed=True), _run(call, packed=False)
  del got['dbias']
  for name, x in got.items():
    np.testing.assert_array_equal(x, want[name], name)


WIDTHS = [
  (1, 1, 'bfloat16'),
  (3, 7, 'float32'),
  (1, 16, 'bfloat16'),
  (6, 24, 'bfloat16'),
  (6, 48, 'float32'),
  (2, 80, 'bfloat16'),
  (4, 96, 'float32'),
  (2, 192, 'bfloat16'),
  (1, 512, 'float32'),
]


@pytest.mark.full
@pytest.mark.parametrize(
  'op, heads, width, dtype',
  [
    (op, *WIDTHS[i])
    for n, op in enumerate(errors.FUNCTIONS)
    for i in range(n % 2, len(WIDTHS), 2)
  ],
)
def test_any_head_width(op, heads, width, dtype):
  case = errors.Case(65, heads, width, dtype, 'ragged', 3, 1)
  with errors.simulated('pallas_tpu'):
    found = errors.measure(op, 'pallas_tpu', case)
  if (op, width) == ('linear', 1):
    # At width 1 phi(q) cancels up to eps: dq is almost 0, so not compared.
    del found['dq']
  assert errors.within(found, dtype), found


@pytest.mark.full
@pytest.mark.parametrize('normalize', (True, False))
def test_a_state_makes_two_calls_one(normalize):
  """Two calls linked by a state equal one call on all tokens.

  Gradients of the later outputs flow back through the state.
  """
  call = Call('linear', 'elu1', 1, 90, 2, 32)
  (q, k, v, do), mask, *_ = call.arrays()
  options = {'normalize': normalize, 'scale': SCALE}
  cut = 33

  def later(k0, v0, q, k, v):
    attend = kernels.linear_attention
    early, late = mask[:, :cut], mask[:, cut:]
    more = {**options, 'kernel': 'pallas_tpu', 'return_state': True}
    _, state = attend(q[:, :cut], k0, v0, mask=early, **more)
    return attend(q[:, cut:], k, v, mask=late, initial_state=state, **more)[0]

  with errors.simulated('pallas_tpu'):
    args = k[:, :cut], v[:, :cut], q, k[:, cut:], v[:, cut:]
    out, pull = jax.vjp(later, *args)
    dk0, dv0, dq, dk, dv = pull(do[:, cut:])
  # The loss ignores the outputs of the earlier tokens.
  do = np.asarray(do, np.float64).copy()
  do[:, :cut] = 0
  want = reference.linear(q, k, v, mask, do, **options)[:4]
  got = out, dq[:, cut:], dk, dv, dk0, dv0
  parts = [x[:, cut:] for x in want] + [x[:, :cut] for x in want[2:]]
  for x, y in zip(got, parts, strict=True):
    assert relative_rms(x, y) < 1e-5


def _run(call, packed, cores=1):
  """Returns simulated results and all gradients: {name: array}."""
  (q, k, v, do), mask, state, last = call.arrays()
  name = f'{call.op}_attention' + ('_packed' if packed else '')
  options = call.options()

  def attend(arrays, bias, state):
    return getattr(kernels, name)(
      *arrays,
      kernel='pallas_tpu',
      mask=mask,
      initial_state=state,
      return_state=True,
      **({'bias': bias} if packed else {}),
      **options,
    )

  @jax.jit
  def both(last, do, *args):
    out, pull = jax.vjp(attend, *args)
    return out, pull((do, last))

  arrays = (jnp.stack([q, k, v], axis=2),) if packed else (q, k, v)
  bias = jnp.ones((3, call.heads, call.width)) if packed else None
  with errors.simulated('pallas_tpu', call.seed):
    simulator = dispatch.interpret_params()
  simulator = dataclasses.replace(simulator, num_cores_or_threads=cores)
  with kernels.target('tpu', interpret=simulator):
    (out, final), (grads, dbias, dstate) = both(last, do, arrays, bias, state)
  no_races()
  dq, dk, dv = (grads[0][:, :, i] for i in range(3)) if packed else grads
  got = {'out': out, 'dq': dq, 'dk': dk, 'dv': dv, 'dbias': dbias}
  sums = {'state': final, 'dstate': dstate}
  for key, x in sums.items():
    x = x if call.normalize else (x,)
    got |= {f'{key}{i}': y for i, y in enumerate(x)}
  return {n: None if x is None else np.float64(x) for n, x in got.items()}


def _check(call, got):
  want = expected(call)
  assert got.keys() == want.keys()
  limit = {'float32': 1e-5, 'bfloat16': 6e-3}[call.dtype]
  found = {name: relative_rms(got[name], want[name]) for name in want}
  assert all(error < limit for error in found.values()), found
  off = ~np.asarray(call.arrays()[1])
  for name in ('out', 'dq', 'dk', 'dv'):
    assert not got[name][off].any(), name


def _recorded(monkeypatch):
  """Returns a list that collects the grid of each kernel call from now on."""
  grids, run = [], tpu.call

  def record(*args, grid, **kwargs):
    grids.append(grid)
    return run(*args, grid=grid, **kwargs)

  monkeypatch.setattr(tpu, 'call', record)
  return grids


