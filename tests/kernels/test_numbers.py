"""Compares every kernel and its gradients with float64 equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.kernels import chunks, dispatch, tpu
from lra.kernels.linear import features
from tests.helpers import errors
from tests.helpers.errors import Case, relative_rms
from tests.helpers.gradients import no_races
from tests.helpers.products import at_the_highest

# Both dtypes, masks with ragged and with empty rows, one and several blocks.
QUICK = [
  Case(150, 2, 64, 'float32', 'ragged', 1),
  Case(63, 3, 32, 'bfloat16', 'empty', 2),
]
FORMS = [
  Case(150, 2, 64, dtype, 'ragged', 1, form=form)
  for form in errors.FORMS[1:]
  for dtype in ('float32', 'bfloat16')
]
# Covers each length, width, head count, mask and dtype; not all combinations.
CASES = [
  Case(1, 1, 32, 'float32', 'full', 0),
  Case(1, 4, 64, 'bfloat16', 'empty', 1),
  Case(63, 6, 64, 'float32', 'ragged', 2),
  Case(64, 4, 32, 'bfloat16', 'full', 3),
  Case(64, 1, 128, 'float32', 'empty', 4),
  Case(65, 1, 64, 'bfloat16', 'ragged', 5),
  Case(127, 4, 128, 'float32', 'ragged', 6),
  Case(127, 6, 32, 'bfloat16', 'empty', 7),
  Case(500, 6, 64, 'bfloat16', 'ragged', 0),
  Case(500, 4, 128, 'float32', 'full', 1),
  Case(1000, 4, 64, 'bfloat16', 'empty', 2, 1),
  Case(1000, 1, 128, 'float32', 'ragged', 3),
]
OPS = tuple(errors.FUNCTIONS)
each_kernel = pytest.mark.parametrize(
  'kernel', ('xla', pytest.param('pallas_tpu', marks=pytest.mark.full))
)


def _check(op, kernel, case, seed=0):
  with errors.simulated(kernel, seed):
    found = errors.measure(op, kernel, case)
  assert errors.within(found, case.dtype), (op, kernel, case, found)


def _cases(every):
  """Returns (op, case) pairs: QUICK, and CASES under --full.

  Args:
    every: {op: slice of CASES}; all of CASES if `op` is missing.
  """
  return [
    *((op, case) for op in OPS for case in QUICK),
    *(
      pytest.param(op, case, marks=pytest.mark.full)
      for op in OPS
      for case in CASES[every.get(op, slice(None))]
    ),
  ]


@pytest.mark.parametrize('op, case', _cases({}), ids=str)
def test_xla(op, case):
  _check(op, 'xla', case)


@pytest.mark.every(3)
@pytest.mark.parametrize(
  'op, case',
  [
    (op, case)
    for op in OPS
    for case in FORMS
    if op == 'lightning' or '+' not in case.form
  ],
  ids=str,
)
def test_forms_of_a_call(op, case):
  """Tests `xla` with states, packed operands, segments and SiLU."""
  _check(op, 'xla', case)


@pytest.mark.every(5)
@pytest.mark.parametrize(
  'op, case',
  # SimpleTRON runs the kernels of linear attention.
  _cases({
    'linear': slice(0, None, 2),
    'lightning': slice(1, None, 2),
    'simpletron': slice(0, None, 3),
  }),
  ids=str,
)
def test_pallas_tpu(op, case, monkeypatch):
  """Simulates a TPU: unwritten memory is NaN, grid order random, races fail."""
  if case.seed % 2:
    monkeypatch.setattr(tpu, 'MAX_ROWS', 128)  # several blocks
  _check(op, 'pallas_tpu', case, seed=case.seed // 2 % 2)
  no_races()


@pytest.mark.full
def test_xla_lightning_over_several_segments():
  _check('lightning', 'xla', Case(length=2001, heads=1, width=32))


@pytest.mark.full
@pytest.mark.parametrize('seed', (0, 1))
def test_simulator_finds_a_grid_axis_wrongly_marked_parallel(monkeypatch, seed):
  """If a sequential grid axis is marked parallel, the carried sum is wrong."""
  call = tpu.call

  def all_parallel(*args, semantics, **kwargs):
    return call(*args, semantics=('parallel',) * len(semantics), **kwargs)

  monkeypatch.setattr(tpu, 'call', all_parallel)
  monkeypatch.setattr(tpu, 'MAX_ROWS', 128)
  case = Case(length=500, heads=1, width=32)
  with errors.simulated('pallas_tpu', seed):
    found = errors.measure('lightning', 'pallas_tpu', case)
  assert not errors.within(found, case.dtype)


@each_kernel
@pytest.mark.parametrize('feature_map', ('relu', 'identity'))
def test_other_feature_maps(feature_map, kernel):
  """relu and identity equal float64; sums of identity cannot normalise."""
  arrays, named, _ = errors.operands('linear', Case(130, 2, 64, 'float32'))
  options = {
    'feature_map': feature_map,
    'normalize': feature_map == 'relu',
    'scale': 0.3,
    'eps': 0.5,
  }
  attend = errors.FUNCTIONS['linear']
  with errors.simulated(kernel):
    got = _with_gradients(
      lambda *x: attend(*x, kernel=kernel, **named, **options), *arrays
    )
  mask = np.asarray(named['mask'])
  want = errors.REFERENCES['linear'](*arrays[:3], mask, arrays[3], **options)
  for x, y in zip(got, want[:4], strict=True):
    assert relative_rms(x, y) < 1e-5


@each_kernel
@pytest.mark.parametrize('op', OPS)
def test_nothing_valid_without_eps_is_zero_not_nan(op, kernel):
  x = jnp.ones((1, 9, 1, 8))
  options = {'eps': 0.0} if op == 'linear' else {}
  attend = errors.FUNCTIONS[op]
  mask = jnp.zeros((1, 9), bool)
  with errors.simulated(kernel):
    for y in _with_gradients(
      lambda *x: attend(*x, mask=mask, kernel=kernel, **options), x, x, x, x
    ):
      np.testing.assert_array_equal(y, 0)


def _with_gradients(function, *arrays):
  @jax.jit
  def both(do, *arrays):
    out, pull = jax.vjp(function, *arrays)
    return out, *pull(do)

  return both(arrays[-1], *arrays[:-1])


POINTS = np.r_[np.linspace(-12, 12, 96), -1e-3, 1e-3]  # avoids the kink at 0


def _difference(function, step=1e-6):
  low, high = function(POINTS - step), function(POINTS + step)
  return (high - low) / (2 * step)


def test_silu():
  function = lambda x: x / (1 + np.exp(-x))
  x = jnp.asarray(POINTS, jnp.float32)
  np.testing.assert_allclose(
      features.silu(x), function(POINTS), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(
      features.silu_slope(x), _difference(function), atol=1e-5)


@pytest.mark.parametrize('name, function', [
  ('elu1', lambda x: np.where(x > 0, x + 1, np.exp(x))),
  ('relu', lambda x: np.maximum(x, 0)),
  ('identity', lambda x: x),
])
def test_feature_maps(name, function):
  x = jnp.asarray(POINTS, jnp.float32)
  phi = features.apply(name, x)
  np.testing.assert_allclose(phi, function(POINTS), rtol=1e-5, atol=1e-7)
  for got in (features.slope(name, x), features.slope_from(name, phi)):
    np.testing.assert_allclose(got, _difference(function), atol=1e-5)


@pytest.mark.parametrize('count', (1, 16, 17, 40, 300))
def test_prefix_is_the_recurrence(count):
  """The lengths give trees of 1, 2 and 3 levels, and full or shorter groups."""
  rng = np.random.default_rng(count)
  x = rng.standard_normal((2, count, 3, 4, 5)).astype(np.float32)
  slopes = np.array([0.0, 1e-3, 0.2], np.float32)
  left = np.exp(-slopes.astype(np.float64))[:, None, None]
  want, state = np.zeros(x.shape), 0.0
  for n in range(count):
    want[:, n] = state = left * state + x[:, n]
  got = jax.jit(chunks.prefix)(jnp.asarray(x), jnp.asarray(slopes))
  assert relative_rms(got, want) < 1e-5
  # Compare per head: the head without decay is larger and would hide errors.
  for h in range(3):
    assert relative_rms(got[:, :, h], want[:, :, h]) < 1e-5


PRODUCT = jax.ShapeDtypeStruct((2, 24, 2, 8), jnp.float32)
PLAIN = [
  (op, kernel)
  for op in errors.EVERY
  for kernel in dispatch.OPS[op]
  if kernel in ('xla', 'dense', 'chunked')
]


@pytest.mark.parametrize('dtype', ('float32', 'bfloat16'))
@pytest.mark.parametrize('op, kernel', PLAIN)
def test_only_float32_products_run_at_the_highest(op, kernel, dtype):
  def both(q, k, v, mask, do):
    def attend(*args):
      return errors.EVERY[op](*args, mask=mask, kernel=kernel)

    out, pull = jax.vjp(attend, q, k, v)
    return out, pull(do)

  x = PRODUCT.update(dtype=jnp.dtype(dtype))
  mask = jax.ShapeDtypeStruct(PRODUCT.shape[:2], bool)
  with dispatch.target('gpu'):  # on a CPU bfloat16 becomes float32
    program = jax.make_jaxpr(both)(x, x, x, mask, x)
  found = list(at_the_highest(program.jaxpr))
  assert len(found) >= 6  # forward 2, gradients 4
  # With bfloat16 inputs some sums, such as the normaliser, are float32.
  assert all(high == float32 for float32, high in found)
  assert dtype == 'float32' or not all(high for _, high in found)
