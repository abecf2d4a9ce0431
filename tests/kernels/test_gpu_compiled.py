"""Compiles the Hopper kernels for an H200; no GPU is needed."""

import functools
import types

import jax
import pytest

pytest.importorskip('jax.experimental.pallas.mosaic_gpu')

from lra import kernels
from lra.kernels import hopper_call
from tools import h200

# Number of kernels called: forward only, and forward plus backward.
KERNELS = {
  'linear': {'forward': 2, 'backward': 4},
  'simpletron': {'forward': 2, 'backward': 4},
  'lightning': {'forward': 1, 'backward': 2},
}


@functools.cache
def _rows(op):
  return h200.reports([op], [64, 128])


def test_sms_are_counted_where_the_gpu_is_here(monkeypatch):
  gpu = types.SimpleNamespace(platform='gpu', core_count=114)
  assert hopper_call.sm_count() == hopper_call.SM_COUNT
  monkeypatch.setattr(jax, 'local_devices', lambda: [gpu])
  assert hopper_call.sm_count() == 114
  with kernels.target('gpu'):
    assert hopper_call.sm_count() == hopper_call.SM_COUNT


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
    # Temporaries: partial sums, or lightning's saved states (Dh / 128 tensors).
    states = width / 128 if (op, which) == ('lightning', 'backward') else 0
    assert row['temporaries'] < states + 0.2, row
