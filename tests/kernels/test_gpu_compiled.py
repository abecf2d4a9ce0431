"""The Hopper kernels compiled for an H200, on a machine without one."""

import functools

import pytest

from kernels.tools import h200

PTXAS = """
ptxas info    : Compiling entry function 'a_mosaic_gpu_kernel' for 'sm_90a'
ptxas info    : Function properties for a_mosaic_gpu_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 58 registers, used 1 barriers, 1 bytes smem
ptxas warning : Registers are spilled to local memory in function 'b'
ptxas info    : Compiling entry function 'b_mosaic_gpu_kernel' for 'sm_90a'
ptxas info    : Function properties for b_mosaic_gpu_kernel
    24 bytes stack frame, 20 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 16 barriers, 24 bytes stack size
"""
# Kernels that a program calls: forward, and forward and backward.
KERNELS = {
  'linear': {'forward': 2, 'backward': 4},
  'simpletron': {'forward': 2, 'backward': 4},
  'lightning': {'forward': 1, 'backward': 2},
}


@functools.cache
def _rows(op):
  return h200.reports([op], [64, 128])


def test_ptxas_output_is_read():
  good, bad = h200._parse(PTXAS)
  assert good == h200.Kernel('a', 58, 0, 0, 0)
  assert bad == h200.Kernel('b', 255, 24, 20, 16)


def test_without_the_wheels_the_command_says_what_is_missing(monkeypatch):
  monkeypatch.setattr(h200, 'missing', lambda: 'no wheels')
  monkeypatch.setattr('sys.argv', ['h200'])
  with pytest.raises(SystemExit, match='no wheels'):
    h200.main()


@pytest.mark.full
@pytest.mark.parametrize('width', (64, 128))
@pytest.mark.parametrize('which', h200.PASSES)
@pytest.mark.parametrize('op', KERNELS)
def test_no_spills_and_no_copies(op, which, width):
  reason = h200.missing()
  if reason:
    pytest.skip(reason)
  rows = [r for r in _rows(op) if (r['pass'], r['width']) == (which, width)]
  assert {row['masked'] for row in rows} == {False, True}
  for row in rows:
    assert row['calls'] == KERNELS[op][which]
    assert row['kernels']
    for kernel in row['kernels']:
      assert kernel['spill_stores'] == kernel['spill_loads'] == 0, row
      assert 0 < kernel['registers'] <= 255
    assert row['copies'] == 0
    # Partial sums, or the saved states of lightning: Dh / 128 tensors.
    states = width / 128 if (op, which) == ('lightning', 'backward') else 0
    assert row['temporaries'] < states + 0.2, row
