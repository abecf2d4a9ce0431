"""Compares the scan with a token-by-token recurrence in float64."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import reference
from lra.kernels.scan import pallas_tpu
from lra.kernels.scan import xla as xla_scan
from tests.helpers import aot, errors
from tools import h200, hlo

FULL = pytest.mark.full
NAMES = ('h', 'dx', 'da', 'last', 'dstate')


@dataclasses.dataclass(frozen=True)
class Case:
  """Settings of random operands; masked tokens and padding hold NaN."""

  length: int
  width: int = 40
  dtype: str = 'float32'
  constant: bool = False
  reverse: bool = False
  mask: bool = True
  state: bool = True
  segments: bool = False
  batch: int = 3

  @property
  def bound(self):
    return 6e-3 if self.dtype == 'bfloat16' else 1e-5


def _operands(case):
  """Returns x, a, dh, the keywords of `linear_scan`, and dlast."""
  rng = np.random.default_rng(case.length)
  shape = case.batch, case.length, case.width
  wide = 'complex64' if case.dtype == 'complex64' else 'float32'

  def normal(*shape):
    y = rng.standard_normal(shape)
    if wide == 'complex64':
      y = y + 1j * rng.standard_normal(shape)
    return y

  a = rng.uniform(0.5, 1.0, shape)
  if wide == 'complex64':
    a = a * np.exp(1j * rng.uniform(-3, 3, shape))
  x, dh = normal(*shape), normal(*shape)
  named, lead = {}, (case.batch,)
  off = np.zeros(shape[:2], bool)
  if case.segments:
    # two segments, an empty one, and padding at both ends
    cut = np.sort(rng.integers(0, case.length + 1, (case.batch, 3)), 1)
    place = np.arange(case.length)
    ids = np.select(
      [(place >= cut[:, :1]) & (place < cut[:, 1:2]),
       (place >= cut[:, 1:2]) & (place < cut[:, 2:])], [0, 2], -1)  # fmt: skip
    named |= {'segment_ids': ids.astype(np.int32), 'num_segments': 3}
    off, lead = ids < 0, (case.batch, 3)
  if case.mask:
    named['mask'] = rng.random(shape[:2]) < 0.7
    named['mask'][-1] = False
    off = off | ~named['mask']
  x[off] = np.nan
  if not case.constant:
    a[off] = np.nan
  dlast = None
  if case.state:
    named['initial_state'] = normal(*lead, case.width).astype(wide)
    dlast = normal(*lead, case.width).astype(wide)
  a = a[0, 0] if case.constant else a
  if case.constant:
    a = np.nan_to_num(a, nan=0.7)
  x, dh = (jnp.asarray(y, case.dtype) for y in (x, dh))
  a = jnp.asarray(a, wide if case.constant else case.dtype)
  return x, a, dh, named | {'reverse': case.reverse}, dlast


def _got(kernel, x, a, dh, named, dlast):
  state = named.get('initial_state')
  rest = {k: v for k, v in named.items() if k != 'initial_state'}

  @jax.jit
  def both(x, a, dh, state, dlast):
    def call(x, a, state):
      return kernels.linear_scan(
        x, a=a, initial_state=state, return_state=True, kernel=kernel, **rest
      )

    (h, last), pull = jax.vjp(call, x, a, state)
    dlast = jnp.zeros_like(last) if dlast is None else dlast
    dx, da, dstate = pull((dh, dlast))
    return h, dx, da, last, dstate

  return both(x, a, dh, state, dlast)


def _want(x, a, dh, named, dlast):
  kind = np.complex128 if np.iscomplexobj(x) else np.float64
  x, a, dh = (np.asarray(y).astype(kind) for y in (x, a, dh))
  named = dict(named)
  if 'segment_ids' in named:
    x, a = (np.nan_to_num(y) for y in (x, a))
    return reference.scan_segments(
      x, a, dh, named.pop('segment_ids'), named.pop('num_segments'),
      dlast=dlast, **named,
    )  # fmt: skip
  return reference.scan(x, np.nan_to_num(a), dh, dlast=dlast, **named)


def _parts(y):
  y = np.asarray(y)
  y = y if np.iscomplexobj(y) else y.astype(np.float64)
  return np.stack([y.real, y.imag])


def check(kernel, case):
  operands = _operands(case)
  with errors.simulated(kernel):
    got = _got(kernel, *operands)
  want = _want(*operands)
  for name, x, y in zip(NAMES, got, want, strict=True):
    if x is None:
      continue
    assert np.isfinite(x.astype(jnp.promote_types(x.dtype, 'float32'))).all()
    found = errors.relative_rms(_parts(x), _parts(y))
    assert found < case.bound, (name, found)
  mask = operands[3].get('mask')
  if mask is not None:
    for x in got[:2]:
      assert not np.asarray(x)[~mask].any()


FEW = [
  Case(70),
  Case(65, dtype='complex64', reverse=True),
  Case(64, dtype='complex64', constant=True, mask=False),
  Case(130, constant=True, reverse=True, state=False),
  Case(90, dtype='bfloat16'),
  Case(50, segments=True),
  Case(50, dtype='complex64', segments=True, reverse=True, constant=True),
]
MORE = [
  Case(length, 24, dtype, constant, reverse, mask, state, segments)
  for length in (1, 2, 63, 257)
  for dtype in ('float32', 'bfloat16', 'complex64')
  for constant, reverse, mask, state, segments in (
    (False, True, True, True, False), (True, False, True, True, False),
    (True, True, False, True, False), (False, False, False, False, False),
    (False, False, True, True, True), (True, True, False, False, True),
  )
]  # fmt: skip
each = pytest.mark.parametrize(
  'case', FEW + [pytest.param(x, marks=FULL) for x in MORE], ids=str
)


@each
def test_xla(case):
  check('xla', case)


@pytest.mark.parametrize('case', FEW, ids=str)
def test_chunks(case, monkeypatch):
  """Runs the chunked scan of accelerators, with a shorter last chunk."""
  monkeypatch.setattr(xla_scan, 'CHUNK', 16)
  monkeypatch.setattr(xla_scan.dispatch, 'platform', lambda: 'gpu')
  monkeypatch.setattr(xla_scan.dispatch, '_warn_once', lambda _: None)
  check('xla', case)


SIMULATED = [
  FEW[0], Case(34, dtype='complex64', reverse=True),
  *(pytest.param(x, marks=FULL) for x in FEW[1:])
]  # fmt: skip


@pytest.mark.parametrize('case', SIMULATED, ids=str)
def test_pallas_tpu(case, monkeypatch):
  """Simulates several blocks of rows and channels; the last are shorter."""
  monkeypatch.setattr(pallas_tpu, 'MAX_ROWS', 32)
  monkeypatch.setattr(pallas_tpu, 'MAX_LANES', 128)
  check('pallas_tpu', dataclasses.replace(case, width=150, batch=2))


@pytest.mark.parametrize('case', SIMULATED, ids=str)
def test_pallas_triton(case, monkeypatch):
  """Simulates several programs of channels, with L in one or two parts."""
  pallas_triton = pytest.importorskip('lra.kernels.scan.pallas_triton')
  rows = case.length // 32 * 16 if case.reverse else case.length
  monkeypatch.setattr(
    pallas_triton.triton, 'cut',
    lambda length, *_: (-(-length // (-(-rows // 16) * 16)), -(-rows // 16)))
  check('pallas_triton', dataclasses.replace(case, width=70, batch=2))


def test_the_reference_has_the_gradients_of_its_recurrence():
  """Compares the reference's gradients with finite differences."""
  rng = np.random.default_rng(0)
  x, dh = rng.standard_normal((2, 2, 6, 3))
  a = rng.standard_normal((2, 6, 3))
  state, dlast = rng.standard_normal((2, 2, 3))
  mask = rng.random((2, 6)) < 0.8

  def loss(x, a, state):
    h, *_, last, _ = reference.scan(x, a, dh, mask=mask, initial_state=state)
    return np.sum(h * dh) + np.sum(last * dlast)

  _, dx, da, _, dstate = reference.scan(
    x, a, dh, mask=mask, initial_state=state, dlast=dlast
  )
  given = [x, a, state]
  for i, grad in enumerate((dx, da, dstate)):
    step = 1e-6 * rng.standard_normal(given[i].shape)
    there, back = (
      loss(*given[:i], given[i] + sign * step, *given[i + 1 :])
      for sign in (1, -1)
    )
    np.testing.assert_allclose(
      (there - back) / 2, np.sum(grad * step), rtol=1e-5
    )


def test_second_half_from_the_state_of_the_first():
  x, a, *_ = _operands(Case(50, mask=False, state=False, dtype='complex64'))
  whole, last = kernels.linear_scan(x, a=a, return_state=True)
  first, state = kernels.linear_scan(x[:, :31], a=a[:, :31], return_state=True)
  second, end = kernels.linear_scan(
    x[:, 31:], a=a[:, 31:], initial_state=state, return_state=True
  )
  parts = jnp.concatenate([first, second], 1)
  np.testing.assert_allclose(parts, whole, rtol=2e-6, atol=1e-6)
  np.testing.assert_allclose(end, last, rtol=2e-6, atol=1e-6)


def test_a_mesh_splits_the_batch():
  mesh = jax.make_mesh(
    (2,), ('data',), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:2]
  )
  for constant in (False, True):
    case = Case(20, constant=constant, batch=4, mask=False, state=False)
    x, a, dh, *_ = _operands(case)
    run = kernels.sharded(kernels.linear_scan, mesh)
    got, want = (
      jax.jit(jax.grad(lambda x, a: jnp.sum(f(x, a=a) * dh), (0, 1)))(x, a)  # noqa: B023
      for f in (run, kernels.linear_scan)
    )
    for y, z in zip(got, want, strict=True):
      np.testing.assert_allclose(y, z, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('case', FEW[1:6], ids=str)
def test_strict_modes(case):
  x, a, _, named, _ = _operands(case)
  with (
    jax.numpy_rank_promotion('raise'),
    jax.numpy_dtype_promotion('strict'),
  ):
    jax.eval_shape(
      lambda: kernels.linear_scan(x, a=a, return_state=True, **named)
    )


def test_refusals_name_the_argument():
  x = jnp.ones((2, 8, 4))
  run = kernels.linear_scan
  for word, y, a, options in (
    (r'x must be a non-empty array \[B, L, E\]', x[0], x[0], {}),
    ('x must be float32 or bfloat16 or complex64', x.astype('float16'), x, {}),
    ('^`a` must have dtype float32', x, x[0], {}),
    ('^`a` must have dtype float32', x, x.astype('complex64'), {}),
    ('^`a` must have dtype complex64', x.astype('complex64'), x, {}),
    ('^mask must be bool', x, x, {'mask': jnp.ones((2, 8))}),
    ('^initial_state must be float32', x, x, {'initial_state': x[:, :3, 0]}),
    ('^num_segments needs', x, x, {'num_segments': 2}),
    ('^kernel must be', x, x, {'kernel': 'cudnn'}),
  ):
    with pytest.raises(ValueError, match=word):
      run(y, a=a, **options)


COMPILED = [
  (8, 4096, 512, 'float32', False), (4, 2001, 96, 'complex64', True),
  (2, 300, 640, 'bfloat16', False), (2, 17, 40, 'bfloat16', True),
  (1, 1, 8, 'float32', True),
]  # fmt: skip


@FULL
@pytest.mark.parametrize('b, length, width, dtype, constant', COMPILED)
def test_compiled_for_a_tpu(b, length, width, dtype, constant):
  """Forward and backward are one kernel each and copy no operand."""
  try:
    place = jax.sharding.SingleDeviceSharding(aot.device('v5e'))
  except aot.Unavailable as reason:
    pytest.skip(str(reason))
  text = _both_passes('tpu', 'pallas_tpu', place, b, length, width, dtype,
                      constant)  # fmt: skip
  assert text.count('custom_call_target="tpu_custom_call"') == 2
  if length > 1000 and dtype == 'float32':
    assert not hlo.copies(text, b * length * width * 4)


@FULL
@pytest.mark.parametrize('b, length, width, dtype, constant', COMPILED)
def test_compiled_for_an_h200(b, length, width, dtype, constant):
  reason = h200.missing()
  if reason:
    pytest.skip(reason)
  place = jax.sharding.SingleDeviceSharding(aot.device('h200'))
  with aot.lowering('h200'):
    text = _both_passes('gpu', 'pallas_triton', place, b, length, width, dtype,
                        constant)  # fmt: skip
  assert text.count('triton') >= 2


def _both_passes(platform, kernel, place, b, length, width, dtype, constant):
  """Returns compiled HLO text of a scan with states and its gradients."""
  wide = 'complex64' if dtype == 'complex64' else 'float32'

  def array(*shape, dtype=dtype):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

  def both(x, a, state, dh, dlast):
    def call(x, a, state):
      return kernels.linear_scan(
        x, a=a, initial_state=state, return_state=True, kernel=kernel
      )

    h, pull = jax.vjp(call, x, a, state)
    return h, pull((dh, dlast))

  x, state = array(b, length, width), array(b, width, dtype=wide)
  a = array(width, dtype=wide) if constant else x
  with kernels.target(platform):
    lowered = jax.jit(both).lower(x, a, state, x, state)
  return lowered.compile().as_text()
