"""Simulates TPU kernels with packed operands, states, SiLU, biases.

Results are compared with float64. In the simulator unwritten memory is NaN, the
grid runs in random order, and a data race fails.
"""

import numpy as np
import pytest

from lra.kernels import dispatch, tpu
from tests.helpers import errors, packed
from tests.helpers.gradients import no_races
from tests.helpers.packed import Call

pytestmark = pytest.mark.full
CALLS = [
  Call('linear', 'elu1', 2, 150, 2, 64),
  Call('lightning', 'silu', 2, 150, 2, 64, 'bfloat16'),
  Call('linear', 'elu1', 2, 150, 2, 64, 'bfloat16', 1),
  Call('linear', 'relu', 1, 40, 3, 48),
  Call('linear', 'elu1', 2, 300, 1, 16, seed=1),
  Call('linear', 'elu1', 2, 300, 3, 48, 'bfloat16'),
  Call('linear', 'elu1', 2, 300, 4, 128, seed=2),
  Call('simpletron', '', 2, 200, 2, 64, 'bfloat16'),
  Call('simpletron', '', 1, 7, 1, 7),
  Call('lightning', 'silu', 2, 300, 3, 48),
  Call('lightning', 'identity', 2, 300, 4, 64, seed=1),
  Call('lightning', 'silu', 1, 5, 1, 1),
  Call('linear', 'elu1', 1, 384, 2, 64),
  Call('lightning', 'silu', 1, 500, 2, 64),
]
APART = [
  Call('linear', 'elu1', 2, 150, 4, 64, 'bfloat16'),
  Call('simpletron', '', 2, 150, 3, 7),
  Call('lightning', 'silu', 2, 150, 4, 64, 'bfloat16'),
  Call('lightning', 'identity', 1, 150, 3, 40),
]


def _run(call, apart=False):
  with errors.simulated('pallas_tpu', call.seed):
    simulator = dispatch.interpret_params()
  got = packed.run(call, 'pallas_tpu', simulator, apart)
  no_races()
  return got


@pytest.mark.parametrize('call', CALLS, ids=str)
def test_packed_against_float64(call, monkeypatch):
  monkeypatch.setattr(tpu, 'MAX_ROWS', 128)
  packed.check(call, _run(call))


@pytest.mark.parametrize('call', APART, ids=str)
def test_packed_is_what_apart_is(call):
  """Packed operands and separate q, k, v give bit-identical results."""
  got, want = _run(call), _run(call, apart=True)
  del got['dbias']
  for name, x in got.items():
    np.testing.assert_array_equal(x, want[name], name)


WIDTHS = [
  (1, 1, 'bfloat16'), (3, 7, 'float32'), (1, 16, 'bfloat16'),
  (6, 24, 'bfloat16'), (6, 48, 'float32'), (2, 80, 'bfloat16'),
  (4, 96, 'float32'), (2, 192, 'bfloat16'), (1, 512, 'float32'),
]


@pytest.mark.parametrize('op, heads, width, dtype', [
  (op, *WIDTHS[i]) for n, op in enumerate(errors.FUNCTIONS)
  for i in range(n % 2, len(WIDTHS), 2)])
def test_any_head_width(op, heads, width, dtype):
  case = errors.Case(65, heads, width, dtype, 'ragged', 3, 1)
  with errors.simulated('pallas_tpu'):
    found = errors.measure(op, 'pallas_tpu', case)
  if (op, width) == ('linear', 1):
    # At width 1 phi(q) cancels up to eps: dq is almost 0, so not compared.
    del found['dq']
  assert errors.within(found, dtype), found
