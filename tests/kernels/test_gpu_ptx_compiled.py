"""Runs our compiled GPU kernels in the PTX runner."""

import functools
import itertools

import jax
import jax.numpy as jnp
import pytest

from kernels import hopper
from kernels.lightning import pallas_gpu as lightning
from kernels.linear import pallas_gpu as linear
from kernels.tools import h200
from kernels.tools.ptx import compiled, run


def _need_compiler(monkeypatch):
  reason = h200.missing()
  if reason:
    pytest.skip(reason)
  monkeypatch.setenv('MOSAIC_GPU_DUMP_PTX', '1')


def _column_sums(warpgroups, scratch):
  """Returns a kernel that sums a tile [64, 64] per warpgroup over its rows."""
  from jax.experimental.pallas import mosaic_gpu as plgpu

  def body(x_ref, out_ref):
    w = jax.lax.axis_index('wg')
    x = hopper.Tools(False).load_global(x_ref, (w,))
    out_ref[w] = jnp.sum(x, axis=0)

  return plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct((warpgroups, 64), jnp.float32),
    num_threads=warpgroups,
    thread_name='wg',
    compiler_params=plgpu.CompilerParams(
      lowering_semantics=plgpu.LoweringSemantics.Warpgroup,
      reduction_scratch_bytes=scratch,
    ),
  )


@pytest.mark.full
@pytest.mark.parametrize('scratch', (1024, 4096))
def test_a_sum_across_warps_by_two_warpgroups_races(scratch, monkeypatch):
  _need_compiler(monkeypatch)
  found = {}
  for warpgroups in 1, 2:
    x = jax.ShapeDtypeStruct((warpgroups, 64, 64), jnp.float32)
    (kernel,) = compiled.kernels(_column_sums(warpgroups, scratch), x)
    assert kernel.warpgroups == warpgroups
    found[warpgroups] = run.run(kernel).races
  assert not found[1]
  assert 'writes over what is written' in {race.what for race in found[2]}
  assert {w // 4 for race in found[2] for w in race.warps} == {0, 1}


def _meet_nobody(monkeypatch):
  monkeypatch.setattr(hopper, 'meet', lambda *_: None)


def _fence_nothing(monkeypatch):
  monkeypatch.setattr(hopper.plgpu, 'commit_smem', lambda: None)


def _send_without_waiting(monkeypatch):
  monkeypatch.setattr(
    hopper.plgpu, 'wait_smem_to_gmem', lambda *_, **options: None
  )


def _free_slots_too_early(monkeypatch):
  release = hopper.Ring.release
  early = lambda self, step: release(self, step + 1)
  monkeypatch.setattr(hopper.Ring, 'release', early)


@pytest.mark.full
@pytest.mark.parametrize(
  'fault, width, said',
  [
    (_meet_nobody, 128, 'reads what is written'),
    (_fence_nothing, 64, 'reads what is written'),
    (_send_without_waiting, 64, 'writes over what is still read'),
    (_free_slots_too_early, 64, 'writes over what is written'),
  ],
)
@pytest.mark.parametrize('op', ('linear', 'lightning'))
def test_a_fault_in_a_kernel_is_found(op, fault, width, said, monkeypatch):
  _need_compiler(monkeypatch)
  fault(monkeypatch)
  program = h200.program(op, 'backward', width, True, (2, 641, 2))
  found = set()
  for kernel in compiled.kernels(program[0], *program[1]):
    found |= {race.what for race in run.run(kernel).races}
  assert said in found, found


@functools.cache
def _rows(op):
  return compiled.reports([op], [64, 128])


@pytest.mark.full
@pytest.mark.parametrize('width', (64, 128))
@pytest.mark.parametrize('op', ('linear', 'simpletron', 'lightning'))
def test_no_races_in_the_compiled_kernels(op, width):
  reason = h200.missing()
  if reason:
    pytest.skip(reason)
  rows = [row for row in _rows(op) if row['width'] == width]
  names = {'sums', 'outputs', 'query_gradients', 'key_gradients'}
  if op == 'lightning':
    names = {'sums', 'lightning_forward', 'lightning_backward'}
  for form in h200.FORMS:
    found = {r['kernel'] for r in rows if (r['masked'], r['packed']) == form}
    if op != 'lightning' and form[1]:
      # `new_body` is JAX's name for a kernel that updates an array in place.
      found = found - {'new_body'} | {'key_gradients'}
    assert found == names, form
  for row in rows:
    assert row['warpgroups'] == width // 64
    assert row['races'] == [], row
    assert row['shared_bytes'] == 0, row


# kernel: (which of q, k, v it fetches, whether it fetches the gradient)
FETCHED = {
  'sums': ('kv', False),
  'outputs': ('q', False),
  'query_gradients': ('q', True),
  'key_gradients': ('kv', False),
  'new_body': ('kv', False),  # JAX's name for a kernel with in-place updates
  'lightning_forward': ('qkv', False),
  'lightning_backward': ('qkv', True),
}


@pytest.mark.full
@pytest.mark.parametrize('packed', (False, True))
@pytest.mark.parametrize('op', ('linear', 'lightning'))
def test_blocks_fetch_every_tile_once_and_neighbours_neighbouring_heads(
  op, packed, monkeypatch
):
  """Each tile is fetched once; with packed operands, only the block's heads."""
  _need_compiler(monkeypatch)
  b, length, h, width = shape = (2, 577, 3, 128)
  parts = linear._parts(shape) if op == 'linear' else 1
  assert (parts > 1) == (op == 'linear')
  monkeypatch.setattr(lightning, '_parts', lambda *_: 1)
  program = h200.program(op, 'backward', width, False, shape[:3], packed)
  found = compiled.kernels(program[0], *program[1])
  names = {kernel.name for kernel in found}
  assert len(names) == len(found) == (4 if op == 'linear' else 2)
  for kernel in found:
    operands, do = FETCHED[kernel.name]
    if kernel.name == 'lightning_backward' and packed:
      operands *= 2  # SiLU fetches them a second time
    first = ['qkv'.index(x) * h * packed for x in operands] + [0] * do
    each = itertools.product(
      first, range(width // 64), range(0, length, 64), range(h), range(b)
    )
    tiles = [(0, col, row, n + head, i) for n, col, row, head, i in each]
    if kernel.name == 'lightning_backward':
      pairs = range(b * h * -(-length // 128))  # the states, of 2 x 2 tiles
      tiles += itertools.product([0], [0], range(2), (0, 8), pairs)
    fetched = []
    for part, bh in itertools.product(range(parts), range(b * h)):
      report = run.run(kernel, (bh, part, 0))
      assert not report.races
      fetched += report.fetched
      if kernel.name != 'lightning_backward':
        heads = {coordinates[3] for coordinates in report.fetched}
        assert heads == {bh % h + n for n in first}
    assert sorted(fetched) == sorted(tiles), kernel.name
