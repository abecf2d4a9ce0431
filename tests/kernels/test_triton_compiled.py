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


# Bytes that a thread may spill. TF32x3 holds every operand twice. Lightning
# attention with SiLU, mask and bias needs more than the 255 registers of a
# thread on compute capability 12.0.
SPILLS = {'bfloat16': 0, 'float32': 64}
SPILLS_12 = 160
COMPILED = {
  'a100': (48, 64, 128, 256),
  'l40s': (64, 128),
  'h200': (64, 96, 128),
  'b200': (64, 128),
  'rtx5090': (64, 128),
}


@pytest.mark.full
@pytest.mark.parametrize('card', COMPILED)
def test_compiled(card):
  """Kernels copy nothing, spill little and use tensor cores (or TF32)."""
  reason = h200.missing() or (None if triton_report.ptxas() else 'no ptxas')
  if reason:
    pytest.skip(reason)
  for row in triton_report.reports(card, widths=COMPILED[card]):
    assert row['copies'] == 0, row
    for kernel in row['kernels']:
      most = SPILLS_12 if card == 'rtx5090' else SPILLS[row['dtype']]
      assert kernel['spills'] <= most, (kernel, row)
      exact = ['tf32' in product for product in kernel['products']]
      assert exact == [row['dtype'] == 'float32'] * len(exact), row


# layer: (widths, bytes that a thread may spill)
LAYERS = {
  'layer_norm': ((64, 96, 512), 0),
  'embedding': ((64, 512), 48),
  'dense': ((32, 64), 384),  # spilled for W [64, 192] in bfloat16
}


@pytest.mark.full
@pytest.mark.parametrize('card', ('a100', 'h200', 'rtx5090'))
@pytest.mark.parametrize('op', LAYERS)
def test_layers_compiled(op, card):
  """Layers copy nothing and spill at most the bytes in `LAYERS`."""
  reason = h200.missing() or (None if triton_report.ptxas() else 'no ptxas')
  if reason:
    pytest.skip(reason)
  widths, spills = LAYERS[op]
  rows = triton_report.reports(card, (op,), widths)
  assert len(rows) == 2 * len(widths)
  for row in rows:
    assert row['copies'] == 0, row
    assert len(row['kernels']) == (2 if op == 'layer_norm' else 1), row
    for kernel in row['kernels']:
      assert kernel['spills'] <= (0 if card == 'h200' else spills), row
      tf32 = op == 'dense' and row['dtype'] == 'float32'
      assert all(('tf32' in x) == tf32 for x in kernel['products']), row
