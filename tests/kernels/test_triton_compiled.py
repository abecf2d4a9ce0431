"""Compiles the Triton kernels for several GPUs, without having them."""

import pytest

pytest.importorskip('jax.experimental.pallas.triton')

from tools import h200, triton_report

PTX = """
.visible .entry good(.param .u64 x)
{ cp.async.cg.shared.global [a], [b], 16, 16;
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {a}, {b}, {c}, {d}; }
.visible .entry bad(.param .u64 x)
{ wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {a}, b, c, p, 1, 1; }
"""
PTXAS = """
ptxas info    : Compiling entry function 'good' for 'sm_80'
ptxas info    : Function properties for good
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 91 registers, used 1 barriers
ptxas info    : Compiling entry function 'bad' for 'sm_90a'
ptxas info    : Function properties for bad
    24 bytes stack frame, 20 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
"""


def test_reports_are_read():
  good, bad = triton_report.read(PTX, PTXAS)
  product = 'mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32'
  assert good == triton_report.Kernel('good', 91, 0, (product,), 1)
  product = 'wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32'
  assert bad == triton_report.Kernel('bad', 255, 36, (product,), 0)


# op: (card -> widths, bytes that a thread may spill, at least these kernels).
# TF32x3 holds every operand twice. Lightning attention with SiLU, mask and bias
# needs more than the 255 registers of a thread on compute capability 12.0. A
# norm has four heads: E and D are 4 times as wide.
ATTENTION = {'a100': (48, 64, 128, 256), 'l40s': (64, 128),
             'h200': (64, 96, 128), 'b200': (64, 128), 'rtx5090': (64, 128)}
NORM = {**dict.fromkeys(('a100', 'h200', 'b200'), (64, 128, 256)),
        'rtx5090': (128,)}
LAYER = ('a100', 'h200', 'rtx5090')
CASES = [
  *((None, card, widths, 160 if card == 'rtx5090' else 64)
    for card, widths in ATTENTION.items()),
  *(('norm_project', card, widths, 0) for card, widths in NORM.items()),
  *(('layer_norm', card, (64, 96, 512), 0) for card in LAYER),
  *(('embedding', card, (64, 512), 48) for card in LAYER),
  # spilled for W [64, 192] in bfloat16
  *(('dense', card, (32, 64), 384) for card in LAYER),
]
COUNTS = {'layer_norm': 2, 'embedding': 1, 'dense': 1}


@pytest.mark.full
@pytest.mark.parametrize('op, card, widths, spills', CASES)
def test_compiled(op, card, widths, spills):
  """Kernels copy nothing, spill little and use tensor cores (or TF32)."""
  reason = h200.missing() or (None if triton_report.ptxas() else 'no ptxas')
  if reason:
    pytest.skip(reason)
  more = {} if op is None else {'ops': (op,)}
  rows = triton_report.reports(card, widths=widths, **more)
  if op:
    assert len(rows) == 2 * len(widths)  # two dtypes
  for row in rows:
    assert row['copies'] == 0, row
    names = {kernel['name'] for kernel in row['kernels']}
    if op == 'norm_project':
      assert {op, 'norm_project_gradients'} <= names, row
    if op in COUNTS:
      assert len(row['kernels']) == COUNTS[op], row
    exact = row['dtype'] == 'float32' and op not in ('layer_norm', 'embedding')
    most = spills
    if op is None and card != 'rtx5090' and row['dtype'] == 'bfloat16' or (
        op in COUNTS and card == 'h200'):
      most = 0
    for kernel in row['kernels']:
      assert kernel['spills'] <= most, (kernel, row)
      assert all(('tf32' in x) == exact for x in kernel['products']), row
