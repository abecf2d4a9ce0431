"""Compares the Hopper kernels, run in the GPU interpreter, with float64.

The interpreter simulates TMA loads, barriers and several warpgroups. It does
not simulate register layouts, overlapping views of shared memory or tensor-core
operands in registers; see `lra.kernels.hopper`.
"""

import functools

import jax.numpy as jnp
import pytest

pytest.importorskip('jax.experimental.pallas.mosaic_gpu')

from lra import kernels
from lra.kernels import hopper, hopper_call
from lra.kernels.lightning import pallas_gpu as lightning
from tests.helpers import errors
from tests.helpers.errors import Case, relative_rms
from tests.helpers.gradients import hopper_simulator

# (op, case, number of parts of L; None: the kernels choose)
QUICK = [
  ('linear', Case(65, 2, 64, 'bfloat16', 'empty', 1), None),
  ('simpletron', Case(63, 1, 64, 'bfloat16', 'full', 0), None),
  ('lightning', Case(192, 1, 64, 'bfloat16', 'ragged', 2, 1), None),
]
CASES = [
  ('linear', Case(1, 2, 64, 'bfloat16', 'full', 0), None),
  ('linear', Case(300, 1, 128, 'bfloat16', 'ragged', 2), 2),
  ('linear', Case(600, 1, 64, 'bfloat16', 'full', 3, 1), 5),
  ('simpletron', Case(200, 1, 128, 'bfloat16', 'ragged', 1), 2),
  ('lightning', Case(1, 2, 64, 'bfloat16', 'full', 0), None),
  ('lightning', Case(127, 2, 128, 'bfloat16', 'empty', 1), None),
  ('lightning', Case(192, 3, 64, 'bfloat16', 'full', 2, 1), None),
  ('lightning', Case(300, 1, 128, 'bfloat16', 'ragged', 5), 2),
  # Three parts of two pairs of chunks each; the last is shorter, not empty.
  ('lightning', Case(700, 2, 64, 'bfloat16', 'ragged', 4, 1), 3),
]


@pytest.fixture
def simulator():
  """Returns a maker of contexts whose interpreter stops at a data race."""
  params = hopper_simulator(detect_races=True)
  return lambda: kernels.target('gpu', interpret=params)


def _cut(monkeypatch, parts):
  if parts is not None:
    monkeypatch.setattr(hopper_call, 'splits', lambda *_: parts)
    monkeypatch.setattr(lightning, '_parts', lambda *_: parts)


@pytest.mark.parametrize(
  'op, case, parts',
  QUICK + [pytest.param(*c, marks=pytest.mark.full) for c in CASES],
  ids=str)
def test_errors(op, case, parts, simulator, monkeypatch):
  _cut(monkeypatch, parts)
  with simulator():
    found = errors.measure(op, 'pallas_gpu', case)
  assert errors.within(found, case.dtype), (op, case, found)


@pytest.mark.full
@pytest.mark.parametrize('op', ('linear', 'lightning'))
def test_simulator_finds_warpgroups_that_do_not_meet(
  op, simulator, monkeypatch
):
  """Without its barriers a kernel has a data race, which is found."""
  monkeypatch.setattr(hopper, 'meet', lambda *_: None)
  with simulator(), pytest.raises(Exception, match='(?i)race|callback'):
    errors.measure(op, 'pallas_gpu', Case(128, 1, 128, 'bfloat16', 'full'))


def test_relu_without_eps_and_normaliser(simulator):
  """With `eps` = 0 the padding of the last chunk must not give 0 / 0."""
  case = Case(70, 1, 64, 'bfloat16', 'full', 0, 1)
  arrays, named, _ = errors.operands('linear', case)
  q, k, v, _ = arrays
  call = functools.partial(
    kernels.linear_attention, feature_map='relu', eps=0.0
  )
  with simulator():
    got = call(q, k, v, kernel='pallas_gpu')
  want = call(*(x.astype(jnp.float32) for x in (q, k, v)), **named)
  assert relative_rms(got, want) < errors.bound('out', 'bfloat16')


@pytest.mark.parametrize('pairs', (1, 8, 48, 128, 200, 1024))
@pytest.mark.parametrize('chunks', (1, 3, 16, 63, 64, 1025))
def test_parts_cover_the_sequence_and_fill_the_device(pairs, chunks):
  for per_sm in (1, 2):
    parts = hopper_call.splits(pairs, chunks, per_sm)
    per = -(-chunks // parts)
    assert (parts - 1) * per < chunks <= parts * per  # covers all; none empty
    slots = hopper_call.SM_COUNT * per_sm
    if parts > 1:
      assert per >= 4
    if chunks >= 64:
      blocks = pairs * parts
      assert blocks >= 0.75 * min(slots, pairs * chunks // 4)
