"""Tests the count of bytes moved, and that kernels move no block twice."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import tpu
from tests.helpers import errors
from tools import benchmark, hlo

PROGRAM = """
HloModule m

%slices (p.1: f32[8,100], p.2: s32[]) -> f32[1,100] {
  %p.1 = f32[8,100]{1,0:T(8,128)} parameter(0)
  %p.2 = s32[] parameter(1)
  ROOT %d = f32[1,100]{1,0:T(1,128)} dynamic-slice(%p.1, %p.2), sizes={1,100}
}

%body (t: (f32[8,100], s32[])) -> (f32[8,100], s32[]) {
  %t = (f32[8,100]{1,0:T(8,128)}, s32[]) parameter(0)
  %x = f32[8,100]{1,0:T(8,128)} get-tuple-element(%t), index=0
  %i = s32[] get-tuple-element(%t), index=1
  %row = f32[1,100]{1,0:T(1,128)} fusion(%x, %i), kind=kLoop, calls=%slices
  ROOT %r = (f32[8,100]{1,0:T(8,128)}, s32[]) tuple(%x, %i)
}

ENTRY %main (a: f32[8,100], b: bf16[100,8]) -> f32[8,100] {
  %a = f32[8,100]{1,0:T(8,128)} parameter(0)
  %b = bf16[100,8]{0,1:T(8,128)(2,1)} parameter(1)
  %zero = s32[] constant(0)
  %start = (f32[8,100]{1,0:T(8,128)S(1)}, f32[8,100]{1,0:T(8,128)}, u32[]) \
copy-start(%a)
  %near = f32[8,100]{1,0:T(8,128)S(1)} copy-done(%start)
  %init = (f32[8,100]{1,0:T(8,128)}, s32[]) tuple(%a, %zero)
  %w = (f32[8,100]{1,0:T(8,128)}, s32[]) while(%init), condition=%c, \
body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %next = (f32[8,100]{1,0:T(8,128)S(1)}, f32[8,100]{1,0:T(8,128)}, u32[]) \
copy-start(%a)
  %later = f32[8,100]{1,0:T(8,128)S(1)} copy-done(%next)
  ROOT %o = f32[8,100]{1,0:T(8,128)} custom-call(%near, %b, %b), \
custom_call_target="tpu_custom_call"
}
""".replace('\\\n', '')


def test_the_counter_on_a_program_worked_by_hand():
  tile = 8 * 128 * 4  # f32[8,100], padded to 128 lanes
  row = 128 * 4
  prefetch = tile  # copied to on-chip memory: only the read counts
  loop = 5 * (row + 4 + row)  # each turn moves a slice and its index, not x
  # `near` is in on-chip memory; the 8 padded rows of bf16[100,8] are read once
  kernel = 0 + 8 * 128 * 2 + tile
  assert hlo.count(PROGRAM) == (prefetch + loop + kernel, 1 + 5 + 1)


def test_a_condition_says_how_often_a_loop_of_a_tpu_program_runs():
  condition = """%c (u: (f32[8,100], s32[])) -> pred[] {
  %limit = s32[] constant(5)
  %u = (f32[8,100], s32[]) parameter(0)
  %n = s32[] get-tuple-element(%u), index=1
  ROOT %below = pred[] compare(%n, %limit), direction=LT
}

ENTRY"""
  bare = PROGRAM.replace(
    ', backend_config={"known_trip_count":{"n":"5"}}', ''
  )
  assert hlo.count(bare.replace('ENTRY', condition)) == hlo.count(PROGRAM)
  assert hlo.count(bare) != hlo.count(PROGRAM)


CHOICE = """
HloModule m

%none (p.1: f32[8]) -> f32[8] {
  ROOT %p.1 = f32[8]{0} parameter(0)
}

%twice (p.2: f32[8]) -> f32[8] {
  %p.2 = f32[8]{0} parameter(0)
  %once = f32[8]{0} negate(%p.2)
  ROOT %again = f32[8]{0} negate(%once)
}

%body (t: f32[8]) -> f32[8] {
  %t = f32[8]{0} parameter(0)
  %n = s32[] constant(1)
  ROOT %c = f32[8]{0} conditional(%n, %t, %t), \
branch_computations={%none, %twice}
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %known = f32[8]{0} while(%a), condition=%c.1, body=%body, \
backend_config={"known_trip_count":{"n":"3"}}
  ROOT %unknown = f32[8]{0} while(%known), condition=%c.2, body=%body
}
""".replace('\\\n', '')


def test_the_largest_branch_counts_and_the_host_waits_for_the_choice():
  # A loop of unknown length counts once; the host waits for its end too.
  assert hlo.count(CHOICE) == (4 * 2 * 64, 4 * 2)
  assert hlo.waits(CHOICE) == 3 + 2
  assert hlo.waits(PROGRAM) == 0


def test_a_product_writes_all_results_but_its_workspace():
  """A cuBLASLt matmul with GELU writes two results; workspace is ignored."""
  text = """
ENTRY %main (a: f32[8,4], b: f32[4,16]) -> f32[8,16] {
  %a = f32[8,4]{1,0} parameter(0)
  %b = f32[4,16]{1,0} parameter(1)
  ROOT %y = (f32[8,16]{1,0}, f32[8,16]{1,0}, s8[4194304]{0}) custom-call(%a, \
%b), custom_call_target="__cublas$lt$matmul"
}
""".replace('\\\n', '')
  assert hlo.count(text) == (4 * (8 * 4 + 4 * 16 + 2 * 8 * 16), 1)


FUSED = """
%product (p.1: f32[5,8,4], p.2: f32[4,16], p.3: s32[]) -> (f32[8,16], s8[64]) {
  %p.1 = f32[5,8,4]{2,1,0} parameter(0)
  %p.2 = f32[4,16]{1,0} parameter(1)
  %p.3 = s32[] parameter(2)
  %zero.1 = s32[] constant(0)
  %part = f32[1,8,4]{2,1,0} dynamic-slice(%p.1, %p.3, %zero.1, %zero.1)
  %rows = f32[8,4]{1,0} bitcast(%part)
  %call = (f32[8,16]{1,0}, s8[64]{0}) custom-call(%rows, %p.2), \
custom_call_target="__cublas$lt$matmul"
  %value = f32[8,16]{1,0} get-tuple-element(%call), index=0
  %space = s8[64]{0} get-tuple-element(%call), index=1
  ROOT %both = (f32[8,16]{1,0}, s8[64]{0}) tuple(%value, %space)
}

%update (q.1: f32[5,8,16], q.2: f32[8,16], q.3: s32[]) -> f32[5,8,16] {
  %q.1 = f32[5,8,16]{2,1,0} parameter(0)
  %q.2 = f32[8,16]{1,0} parameter(1)
  %q.3 = s32[] parameter(2)
  %zero.2 = s32[] constant(0)
  %new = f32[1,8,16]{2,1,0} bitcast(%q.2)
  ROOT %whole = f32[5,8,16]{2,1,0} dynamic-update-slice(%q.1, %new, %q.3, \
%zero.2, %zero.2)
}

ENTRY %main (a: f32[5,8,4], b: f32[4,16], c: f32[5,8,16], n: s32[]) -> f32[] {
  %a = f32[5,8,4]{2,1,0} parameter(0)
  %b = f32[4,16]{1,0} parameter(1)
  %c = f32[5,8,16]{2,1,0} parameter(2)
  %n = s32[] parameter(3)
  %found = (f32[8,16]{1,0}, s8[64]{0}) fusion(%a, %b, %n), kind=kCustom, \
calls=%product
  %y = f32[8,16]{1,0} get-tuple-element(%found), index=0
  %started = ((f32[5,8,16]{2,1,0}, f32[8,16]{1,0}, s32[]), \
f32[5,8,16]{2,1,0}, u32[]) fusion-start(%c, %y, %n), kind=kLoop, calls=%update
  ROOT %done = f32[5,8,16]{2,1,0} fusion-done(%started)
}
""".replace('\\\n', '')


def test_fusions_around_a_product_and_fusions_that_run_asynchronously():
  y, index = 8 * 16 * 4, 4
  product = 8 * 4 * 4 + 4 * 16 * 4 + index + y  # one of the five slices of a
  update = y + index + y  # the rest of c stays as it is
  assert hlo.count(FUSED) == (product + update, 2)


@pytest.mark.parametrize('form', ('apart', 'packed'))
@pytest.mark.parametrize('direction', ('fwd', 'bwd'))
@pytest.mark.parametrize('op', ('linear', 'lightning'))
def test_every_block_is_moved_once(op, direction, form, monkeypatch):
  """Walks the grid and sums the blocks that change from step to step."""
  # Blocks of packed lightning span all heads: more heads give fewer rows per
  # block, and so more states.
  shape = 2, 4096, 4 if (op, form) == ('lightning', 'packed') else 8, 128
  (moved,) = _traffic(op, direction, form, shape, monkeypatch)
  tensor = np.prod(shape) * 2
  large = [n for n in moved.values() if n >= tensor]
  least = benchmark.TENSORS[direction] * tensor
  assert sum(large) == least and not any(n % tensor for n in large)
  assert sum(moved.values()) < least + 0.35 * tensor


def test_rows_of_no_whole_registers_are_moved_once_a_sweep(monkeypatch):
  """If H * Dh = 64 is no multiple of 128, a sweep reads whole packed rows."""
  shape = 2, 4096, 4, 16
  tensor = np.prod(shape) * 2
  for direction, least in (('fwd', 2 * 3 + 1), ('bwd', 2 * 4 + 3)):
    (moved,) = _traffic('linear', direction, 'packed', shape, monkeypatch)
    large = sum(n for n in moved.values() if n >= tensor)
    assert large == least * tensor, direction


def _traffic(op, direction, form, shape, monkeypatch):
  """Returns, for every kernel of a pass, a dict from operand to bytes moved."""
  calls = []
  run = tpu.call

  def record(kernel, ins, outs, *, grid, **kwargs):
    calls.append((ins, outs, grid))
    return run(kernel, ins, outs, grid=grid, **kwargs)

  monkeypatch.setattr(tpu, 'call', record)
  packed = form == 'packed'
  x = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
  mask = jax.ShapeDtypeStruct(shape[:2], bool)
  arrays = [x, x, x]
  if packed:
    arrays = [
      jax.ShapeDtypeStruct((*shape[:2], 3, *shape[2:]), x.dtype),
      jax.ShapeDtypeStruct((3, *shape[2:]), jnp.float32),
    ]

  def attend(mask, *arrays):
    options = {'mask': mask, 'kernel': 'pallas_tpu'}
    if packed:
      name = f'{op}_attention_packed'
      return getattr(kernels, name)(arrays[0], bias=arrays[1], **options)
    return errors.FUNCTIONS[op](*arrays, **options)

  def backward(mask, do, *arrays):
    pull = jax.vjp(lambda *a: attend(mask, *a), *arrays)[1]
    calls.clear()  # drops the calls of the forward pass
    return pull(do)

  with errors.simulated('pallas_tpu'):
    if direction == 'fwd':
      jax.eval_shape(attend, mask, *arrays)
    else:
      jax.eval_shape(backward, mask, x, *arrays)
  return [
    {
      name: _moved(spec, array, grid)
      for name, (spec, array) in {**ins, **outs}.items()
      if array is not None and spec.block_shape is not None
    }
    for ins, outs, grid in calls
  ]


def _moved(spec, array, grid):
  block = np.prod(spec.block_shape) * array.dtype.itemsize
  last, changes = None, 0
  for point in itertools.product(*map(range, grid)):
    index = tuple(int(i) for i in spec.index_map(*point))
    changes += index != last
    last = index
  return changes * block
