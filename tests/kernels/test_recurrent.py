"""Compares the delta rules, gated linear attention and the scan with float64.
"""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import dispatch, tpu
from lra.kernels.gated import xla as gated
from lra.kernels.scan import pallas_tpu as scan_tpu
from lra.kernels.scan import xla as scan
from tests.helpers import aot, small
from tests.helpers.gradients import descriptions
from tests.helpers.recurrent import Call, Case, check
from tools import h200, hlo

FULL = pytest.mark.full
DELTA = [
  Case('delta', 70),
  Case('delta', 65, beta=2.0, reverse=True),
  Case('delta', 130, decay=-0.1, mask=False),
  Case('delta', 90, decay=-50.0, reverse=True),
  Case('delta', 130, decay=-0.1, channels=True, reverse=True),
  Case('delta', 90, decay=-50.0, channels=True),
  Case('general', 75, decay=-0.3, channels=True),
  Case('general', 90, decay=-50.0, channels=True, reverse=True),
  Case('delta', 90, decay=-0.1, channels=True, dtype='bfloat16'),
  Case('general', 50, decay=-0.1, channels=True, dtype='bfloat16'),
]
GATED = [
  Case('gated', length, channels=channel, **more)
  for channel in (False, True)
  for length, more in (
    (70, {}), (33, {'groups': 4, 'state': False, 'reverse': True}),
    (130, {'strongest': 50.0, 'groups': 2 if channel else 1}),
    (90, {'dtype': 'bfloat16', 'mask': False}))
]  # fmt: skip
SCAN = [
  Case('scan', 70),
  Case('scan', 65, dtype='complex64', reverse=True),
  Case('scan', 64, dtype='complex64', constant=True, mask=False),
  Case('scan', 130, constant=True, reverse=True, state=False),
  Case('scan', 90, dtype='bfloat16'),
  Case('scan', 50, segments=True),
  Case('scan', 50, dtype='complex64', segments=True, reverse=True,
       constant=True),
]  # fmt: skip
MORE = [
  *(Case(op, length, decay=decay, channels=channel, dtype=dtype,
         reverse=reverse, mask=mask, state=state)
    for length in (1, 2, 3, 64, 257) for op in ('delta', 'general')
    for dtype in ('float32', 'bfloat16')
    for decay, channel, reverse, mask, state in (
      (0.0, False, False, True, False), (0.0, False, True, False, True),
      (-0.2, False, True, True, True), (-0.2, True, False, True, False),
      (-3.0, True, True, False, False))),
  *(Case('gated', length, channels=channel, groups=groups, features=features,
         width=width, dtype=dtype, strongest=strongest, reverse=reverse)
    for length in (1, 2, 64, 257) for channel in (False, True)
    for groups, features, width, dtype, strongest, reverse in (
      (4, 16, 16, 'float32', 1.0, False), (2, 5, 7, 'float32', 50.0, True),
      (1, 3, 9, 'bfloat16', 0.1, True))),
  *(Case('scan', length, width=24, dtype=dtype, constant=constant,
         reverse=reverse, mask=mask, state=state, segments=segments)
    for length in (1, 2, 63, 257)
    for dtype in ('float32', 'bfloat16', 'complex64')
    for constant, reverse, mask, state, segments in (
      (False, True, True, True, False), (True, False, True, True, False),
      (True, True, False, True, False), (False, False, False, False, False),
      (False, False, True, True, True), (True, True, False, False, True))),
]  # fmt: skip


def _cases(quick, full=()):
  return pytest.mark.parametrize(
    'case', [*quick, *(pytest.param(x, marks=FULL) for x in full)], ids=str)


@_cases(DELTA[1::5] + GATED + SCAN, DELTA[::5] + DELTA[2::5] + DELTA[3::5]
        + DELTA[4::5] + MORE)  # fmt: skip
def test_xla(case):
  check('xla', case)


@_cases([DELTA[6], DELTA[9]],
        [DELTA[7], *(x for x in MORE if x.op == 'general')])  # fmt: skip
def test_token_by_token(case, monkeypatch):
  """Tests what a CPU does with large batches."""
  monkeypatch.setattr(gated, 'STEP_ROWS', 1)
  check('xla', case)


@_cases([DELTA[6], *SCAN,
         *(Case('gated', 140, channels=x) for x in (0, 1))],
        [DELTA[i] for i in (1, 3, 4, 8)])  # fmt: skip
def test_chunks_of_accelerators(case, monkeypatch):
  """Tests chunks of other sizes; the last one is shorter."""
  monkeypatch.setattr(gated, 'STEPS', 0)
  monkeypatch.setattr(gated, 'SEGMENT', 128)  # several segments
  monkeypatch.setattr(scan, 'CHUNK', 16)
  if case.op == 'scan' or case.dtype != 'bfloat16':
    monkeypatch.setattr(dispatch, 'platform', lambda: 'gpu')
    monkeypatch.setattr(dispatch, '_warn_once', lambda _: None)
  check('xla', case)


@_cases([DELTA[5], GATED[4]], [DELTA[i] for i in (0, 2, 7, 8)] + GATED)
def test_several_segments_of_wide_states(case, monkeypatch):
  monkeypatch.setattr(gated, 'STEPS', 0)
  monkeypatch.setattr(gated, 'CPU_SEGMENT', 48)
  check('xla', case)


GATED_TPU = [
  Case('gated', length, features=16, width=width, heads=heads, **more)
  for length, width, heads, more in (
    (20, 32, 4, {'reverse': True}), (300, 32, 4, {}),
    (129, 16, 8, {'groups': 1, 'strongest': 50.0}),
    (40, 48, 4, {'groups': 4, 'state': False}),
    (300, 16, 16, {'dtype': 'bfloat16', 'mask': False, 'groups': 16}))
]  # fmt: skip
SCAN_PALLAS = [
  Case('scan', 70), Case('scan', 34, dtype='complex64', reverse=True), *SCAN[1:]
]  # fmt: skip


@_cases(GATED_TPU[:1] + SCAN_PALLAS[1:2],
        GATED_TPU[1:] + SCAN_PALLAS[:1] + SCAN_PALLAS[2:])  # fmt: skip
def test_pallas_tpu(case, monkeypatch):
  """Long cases have several blocks of rows, chunks and channels."""
  rows = 256 if case.mask else 128
  monkeypatch.setattr(tpu, 'MAX_ROWS', rows)
  monkeypatch.setattr(scan_tpu, 'MAX_ROWS', 32)
  monkeypatch.setattr(scan_tpu, 'MAX_LANES', 128)
  wide = {'width': 150, 'batch': 2} if case.op == 'scan' else {}
  check('pallas_tpu', case.but(**wide))


@_cases(SCAN_PALLAS[:1], SCAN_PALLAS[1:])
def test_pallas_triton(case, monkeypatch):
  """Simulates several programs of channels, with L in one or two parts."""
  triton = pytest.importorskip('lra.kernels.triton')
  rows = case.length if case.constant else case.length // 32 * 16
  monkeypatch.setattr(
    triton, 'cut',
    lambda length, *_: (-(-length // (-(-rows // 16) * 16)), -(-rows // 16)))
  check('pallas_triton', case.but(width=70, batch=2))


def _run(call, tokens, state=None):
  """Returns the jitted operation of some tokens, and its last state."""
  state = {} if state is None else {'initial_state': state}
  call.fixed.pop('mask', None)
  return jax.jit(call.run)(tokens | state)


@pytest.mark.parametrize('case', [
  pytest.param(Case('delta', 40, decay=-0.1, mask=False, state=False),
               marks=FULL),
  *(Case('gated', 40, channels=x, mask=False, state=False)
    for x in (False, True))], ids=str)  # fmt: skip
def test_minus_infinity_forgets_all_before(case):
  call = Call(case)
  decay = call.moving['log_decay'].at[:, 17].set(-jnp.inf)
  out, _ = _run(call, call.moving | {'log_decay': decay})
  alone, _ = _run(call, {n: x[:, 17:] for n, x in call.moving.items()})
  small.assert_close(out[:, 17:], alone, 1e-5)
  grads = jax.jit(jax.grad(lambda x: call.run(x)[0].sum()))(
    call.moving | {'log_decay': decay})
  assert all(np.isfinite(x).all() for x in grads.values())


@_cases([DELTA[0], GATED[3].but(mask=True), SCAN[6]],
        [DELTA[2], DELTA[6], DELTA[8], GATED[7], *SCAN[1:6]])  # fmt: skip
def test_strict_modes(case):
  call = Call(case)
  with (jax.numpy_rank_promotion('raise'),
        jax.numpy_dtype_promotion('strict')):  # fmt: skip
    jax.eval_shape(lambda x: jax.vjp(call.run, x)[1](call.cotangents),
                   call.moving)  # fmt: skip


# (op, B, L, ...): gated G, H, N, E, dtype, the third with the widths of
# Mamba-2; scan E, dtype, constant.
COMPILED = [
  ('gated', 8, 4096, 4, 4, 64, 64, 'bfloat16'),
  ('gated', 2, 2001, 4, 4, 64, 128, 'bfloat16'),
  ('gated', 4, 4096, 1, 4, 64, 128, 'bfloat16'),
  ('gated', 1, 300, 16, 16, 128, 256, 'float32'),
  ('gated', 2, 17, 2, 2, 16, 48, 'float32'),
  ('scan', 8, 4096, 512, 'float32', False),
  ('scan', 4, 2001, 96, 'complex64', True),
  ('scan', 2, 300, 640, 'bfloat16', False),
  ('scan', 2, 17, 40, 'bfloat16', True),
  ('scan', 1, 1, 8, 'float32', True),
]
TARGETS = [('v5e', x) for x in COMPILED] + [
  *(('v6e', x) for x in COMPILED if x[0] == 'gated'),
  *(('h200', x) for x in COMPILED if x[0] == 'scan')]  # fmt: skip


@FULL
@pytest.mark.parametrize('target, shape', TARGETS, ids=str)
def test_compiled(target, shape):
  """Both passes are one kernel each; the first shape of an op copies nothing.

  For other shapes, XLA chooses another layout of the results at the end of this
  program, which no layer has.
  """
  describe = descriptions(target)
  if target == 'h200' and h200.missing():
    pytest.skip(h200.missing())
  function, arrays, size = _program(target, *shape)
  arrays = [describe(*x) for x in arrays]
  lowering = aot.lowering(target) if target == 'h200' else (
    contextlib.nullcontext())
  with kernels.target(aot.platform(target)), lowering:
    text = jax.jit(function).lower(*arrays).compile().as_text()
  if target == 'h200':
    assert text.count('triton') >= 2
    return
  assert text.count('custom_call_target="tpu_custom_call"') == 2
  if shape in (COMPILED[0], COMPILED[5]):
    assert not hlo.copies(text, size)


def _program(target, op, b, length, *shape):
  """Returns both passes, descriptions of their arrays, bytes of an operand."""
  if op == 'scan':
    width, dtype, constant = shape
    kernel = 'pallas_triton' if target == 'h200' else 'pallas_tpu'
    wide = 'complex64' if dtype == 'complex64' else 'float32'
    x, state = ((b, length, width), dtype), ((b, width), wide)

    def scan(x, a, state, *cotangents):
      def call(x, a, state):
        return kernels.linear_scan(x, a=a, initial_state=state,
                                   return_state=True, kernel=kernel)

      h, pull = jax.vjp(call, x, a, state)
      return h, pull(cotangents)

    a = ((width,), wide) if constant else x
    return scan, (x, a, state, x, state), b * length * width * 4
  groups, heads, features, width, dtype = shape

  def gated(q, k, v, g, do):
    def call(q, k, v, g):
      out = kernels.gated_linear_attention(
        q.reshape(b, length, groups, features),
        k.reshape(b, length, groups, features),
        v.reshape(b, length, heads, width), kernel='pallas_tpu',
        log_decay=jnp.swapaxes(g, 1, 2))  # fmt: skip
      return out.reshape(v.shape)

    out, pull = jax.vjp(call, q, k, v, g)
    return out, *pull(do)

  keys = (b, length, groups * features), dtype
  values = (b, length, heads * width), dtype
  gates = (b, heads, length), 'float32'  # no lanes are padded
  size = b * length * groups * features * jnp.dtype(dtype).itemsize
  return gated, (keys, keys, values, gates, values), size
