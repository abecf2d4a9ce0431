"""Tests that the PTX runner finds data races in hand-written programs."""

import itertools

import numpy as np
import pytest

from kernels.tools.ptx import compiled, parse, run, values
from kernels.tools.ptx.state import Unsupported

# Two warpgroups. %r1 = thread, %r2 = warpgroup, %r3 = 4 (thread % 128),
# %r4 = the warpgroup's barrier, %p1 = true in one thread of the block.
KERNEL = """
.visible .entry test_mosaic_gpu_kernel(.param .u64 result) .maxntid 256, 1, 1
{
  .reg .pred %%p<9>; .reg .b32 %%r<30>; .reg .b64 %%rd<9>;
  .shared .align 1024 .b8 memory[32768];
  .loc 1 2 3
  mov.u32 %%r1, %%tid.x;
  shr.u32 %%r20, %%r1, 7;
  shfl.sync.idx.b32 %%r2, %%r20, 0, 31, -1;
  and.b32 %%r3, %%r1, 127;
  shl.b32 %%r3, %%r3, 2;
  add.s32 %%r4, %%r2, 1;
  elect.sync %%r21|%%p2, -1;
  setp.lt.and.u32 %%p1, %%r1, 32, %%p2;
  mov.b32 %%r5, memory;
  add.s32 %%r6, %%r5, %%r3;       // one word per thread of a warpgroup
  shl.b32 %%r22, %%r1, 2;
  add.s32 %%r7, %%r5, %%r22;      // one word per thread of the block
  %s
  ret;
}
"""
INIT = """
  add.s32 %r8, %r5, 16384;
  mov.b32 %r9, {arrivals};
  @%p1 mbarrier.init.shared::cta.b64 [%r8], %r9;
  bar.sync 0;
"""
WAIT = """
  mov.b32 %r11, {parity};
  {{ .reg .pred P1;
  LAB_WAIT:
  mbarrier.try_wait.parity.shared.b64 P1, [%r8], %r11, 1000000;
  @P1 bra.uni DONE;
  bra.uni LAB_WAIT;
  DONE: }}
"""
MEET = 'mbarrier.arrive.release.cta.shared::cta.b64 %rd1, [%r8], 1;\n'
OTHER = 'xor.b32 %r12, %r7, 512;\n'  # address of a word of the other warpgroup
FETCH = """
  setp.ne.b32 %p4, %r2, 0;
  @%p4 bra $AFTER;
  mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r8], 64;
  @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx\
::bytes [%r5], [%rd2, {%r2, 7} ], [%r8];
$AFTER:
"""
# Stores a tile of 8,192 bytes, 32 per thread; wgmma multiplies it by itself.
STORE_TILE = """
  shl.b32 %r13, %r1, 6;
  add.s32 %r14, %r5, %r13;
  st.shared.v4.b32 [%r14], {%r1, %r1, %r1, %r1};
  st.shared.v4.b32 [%r14+16], {%r1, %r1, %r1, %r1};
  st.shared.v4.b32 [%r14+32], {%r1, %r1, %r1, %r1};
  st.shared.v4.b32 [%r14+48], {%r1, %r1, %r1, %r1};
"""
PRODUCT = """
  shl.b32 %r15, %r2, 13;
  add.s32 %r15, %r15, %r5;
  cvt.u64.u32 %rd3, %r15;
  bfe.u64 %rd3, %rd3, 4, 14;
  or.b64 %rd4, %rd3, 4611686293309489152;
  { .reg .pred p; setp.ne.b32 p, 1, 0;
    wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
      {%f1, %f2}, %rd4, %rd4, p, 1, 1, 0, 0; }
  wgmma.commit_group.sync.aligned;
"""
FINISH = 'wgmma.wait_group.sync.aligned 0;\n'
FENCE = 'fence.proxy.async.shared::cta;\n'
# name -> (program without a race, program with a race, error message)
CASES = {
  'scratch indexed by the thread of the warpgroup': (
    'st.shared.b32 [%r7], %r1; bar.sync %r4, 128; ld.shared.b32 %r9, [%r7];',
    'st.shared.b32 [%r6], %r1; bar.sync %r4, 128; ld.shared.b32 %r9, [%r6];',
    'writes over what is written',
  ),
  'turns at the same scratch': (
    'setp.eq.b32 %p3, %r2, 0; @%p3 st.shared.b32 [%r6], %r1; bar.sync 0;'
    '@!%p3 st.shared.b32 [%r6], %r1;',
    'setp.eq.b32 %p3, %r2, 0; @%p3 st.shared.b32 [%r6], %r1; bar.sync %r4, 128;'
    '@!%p3 st.shared.b32 [%r6], %r1;',
    'writes over what is written',
  ),
  'a barrier of the block': (
    f'{OTHER} st.shared.b32 [%r7], %r1; bar.sync 0; ld.shared.b32 %r9, [%r12];',
    f'{OTHER} st.shared.b32 [%r7], %r1; bar.sync %r4, 128;'
    'ld.shared.b32 %r9, [%r12];',
    'reads what is written|writes over what is read',
  ),
  'warps of a warpgroup': (
    'xor.b32 %r12, %r7, 128; st.shared.b32 [%r7], %r1; bar.sync %r4, 128;'
    'ld.shared.b32 %r9, [%r12];',
    'xor.b32 %r12, %r7, 128; st.shared.b32 [%r7], %r1;'
    'ld.shared.b32 %r9, [%r12];',
    'reads what is written|writes over what is read',
  ),
  'matrices by the row': (
    'shl.b32 %r12, %r1, 4; add.s32 %r12, %r12, %r5; bar.sync 0;'
    'stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r12], {%r1, %r1, %r1, %r1};',
    'shl.b32 %r12, %r1, 4; and.b32 %r12, %r12, 2047; add.s32 %r12, %r12, %r5;'
    'stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r12], {%r1, %r1, %r1, %r1};',
    'writes over what is written',
  ),
  'an mbarrier where all meet': (
    INIT.format(arrivals=256) + OTHER + 'st.shared.b32 [%r7], %r1;'
    + MEET + WAIT.format(parity=0) + 'ld.shared.b32 %r9, [%r12];',
    # Only the first warpgroup arrives, but both continue.
    INIT.format(arrivals=128) + OTHER + 'st.shared.b32 [%r7], %r1;'
    'setp.eq.b32 %p3, %r2, 0; @%p3 '
    + MEET + WAIT.format(parity=0) + 'ld.shared.b32 %r9, [%r12];',
    'reads what is written|writes over what is read',
  ),
  'a copy by TMA': (
    INIT.format(arrivals=128) + FETCH + WAIT.format(parity=0)
    + 'ld.shared.b32 %r9, [%r7];',
    INIT.format(arrivals=128) + FETCH + 'ld.shared.b32 %r9, [%r7];'
    + WAIT.format(parity=0),
    'reads what is written|writes over what is read',
  ),
  'a product of what was stored': (
    STORE_TILE + FENCE + 'bar.sync %r4, 128;' + PRODUCT + FINISH,
    STORE_TILE + 'bar.sync %r4, 128;' + FENCE + PRODUCT + FINISH,
    'reads without a fence what is written',
  ),
  'a product that is still being made': (
    STORE_TILE + FENCE + 'bar.sync %r4, 128;' + PRODUCT + FINISH
    + 'bar.sync %r4, 128;' + STORE_TILE,
    STORE_TILE + FENCE + 'bar.sync %r4, 128;' + PRODUCT
    + 'bar.sync %r4, 128;' + STORE_TILE + FINISH,
    'writes over what is still read',
  ),
  'a loop': (
    'mov.b32 %r9, 0; $LOOP: st.shared.b32 [%r7], %r1; bar.sync 0;'
    f'{OTHER} ld.shared.b32 %r10, [%r12]; bar.sync 0;'
    'add.s32 %r9, %r9, 1; setp.lt.s32 %p3, %r9, 3; @%p3 bra $LOOP;',
    'mov.b32 %r9, 0; $LOOP: st.shared.b32 [%r7], %r1; bar.sync 0;'
    f'{OTHER} ld.shared.b32 %r10, [%r12];'
    'add.s32 %r9, %r9, 1; setp.lt.s32 %p3, %r9, 3; @%p3 bra $LOOP;',
    'writes over what is read',
  ),
}  # fmt: skip


def _kernel(body):
  (kernel,) = parse.kernels('some lines of a log\n' + KERNEL % body)
  return kernel


@pytest.mark.parametrize('case', CASES)
def test_what_nothing_orders_is_found_and_nothing_else(case):
  clean, racy, said = CASES[case]
  assert not run.run(_kernel(clean)).races
  kernel = _kernel(racy)
  found = run.run(kernel).races
  assert {race.what for race in found} & set(said.split('|')), found
  assert 'byte' in compiled.describe(kernel, found[0])


def test_bytes_of_two_warpgroups_are_counted():
  for case, expected in ('scratch', 0), ('turns', 512):
    (body,) = (x[0] for name, x in CASES.items() if name.startswith(case))
    report = run.run(_kernel(body))
    assert report.shared_bytes == expected
    assert report.stores == 1 + (case == 'turns')


def test_barriers_that_never_end_and_addresses_from_memory_are_refused():
  with pytest.raises(run.Deadlock, match='warp 0 waits at line'):
    run.run(_kernel('bar.sync %r4, 256;'))
  with pytest.raises(Unsupported, match='address is not known'):
    run.run(_kernel('ld.global.b32 %r9, [%rd1]; st.shared.b32 [%r9], %r1;'))
  with pytest.raises(Unsupported, match='some lanes branch'):
    run.run(_kernel('@%p2 bra $L; $L: bar.sync 0;'))
  with pytest.raises(Unsupported, match='atom.shared'):
    run.run(_kernel('atom.shared.add.u32 %r9, [%r6], 1;'))
  with pytest.raises(ValueError, match='no label'):
    _kernel('bra $NOWHERE;')


@pytest.mark.parametrize('bits', (16, 32, 64))
def test_integers_are_those_of_numpy(bits):
  """Integer operations equal numpy's, for scalars and for vectors of lanes."""
  numbers = [0, 1, 5, 31, 2**15, 2**15 - 1, 2 ** (bits - 1), 2**bits - 3]
  pairs = list(itertools.product(numbers, numbers))
  pairs = [(a % 2**bits, b % 2**bits) for a, b in pairs]
  for first in range(0, len(pairs), values.LANES):
    _compare_with_numpy(bits, pairs[first : first + values.LANES])


def _compare_with_numpy(bits, pairs):
  a, b = (np.asarray(x, np.uint64) for x in zip(*pairs, strict=True))
  for is_signed, kind in (False, f'uint{bits}'), (True, f'int{bits}'):
    x, y = a.astype(kind), b.astype(kind)
    expected = {
      'add': x + y,
      'sub': x - y,
      'mul': x * y,
      'and': x & y,
      'or': x | y,
      'xor': x ^ y,
      'min': np.minimum(x, y),
      'max': np.maximum(x, y),
    }
    for name, want in expected.items():
      want = want.astype(f'uint{bits}')
      got = values.binary(name, is_signed, bits, a, b)
      np.testing.assert_array_equal(got, want, name)
      got = [values.binary(name, is_signed, bits, *pair) for pair in pairs]
      np.testing.assert_array_equal(np.asarray(got, np.uint64), want, name)
    for name, want in (('lt', x < y), ('ge', x >= y), ('eq', x == y)):
      got = values.compare(name, is_signed, bits, a, b)
      np.testing.assert_array_equal(got, want, name)
    for by in range(bits):
      for name, want in (('shl', x << by), ('shr', x >> by)):
        got = values.shift(name, is_signed, bits, a, by)
        np.testing.assert_array_equal(got, want.astype(f'uint{bits}'), name)
    # Division truncates, as in C.
    for name, function in (('div', np.trunc), ('rem', np.fmod)):
      some = [(int(p), int(q)) for p, q in zip(x, y, strict=True) if q]
      for p, q in some if bits < 64 else ():
        want = np.fmod(p, q) if name == 'rem' else function(p / q)
        got = values.binary(name, is_signed, bits, p % 2**bits, q % 2**bits)
        assert got == int(want) % 2**bits, (name, p, q)
