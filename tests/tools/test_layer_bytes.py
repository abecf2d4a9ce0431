"""Counts bytes and copies of layers compiled for absent accelerators."""

import pytest

from tests.helpers import aot
from tools import layers

# Lightning with every choice of heads, other models with every second choice.
SOME = [(name, 'both', *heads) for i, name in enumerate(layers.MODELS)
        for j, heads in enumerate(layers.HEADS)
        if name == 'lightning' or (i + j) % 2]
SOME += [(name, 'forward', 4, 64) for name in layers.MODELS]
FEW = [(name, 'both', 8, 64) for name in layers.MODELS]
MOST = 1.15  # allowed ratio of the bytes moved to `layers.floor`
CASES = ([('v5e', *case) for case in SOME] + [('v6e', *case) for case in FEW]
         + [('h200', *case) for case in FEW]
         + [('h200', 'lightning', direction, 4, width)
            for direction in layers.PASSES for width in (64, 128)])


def _require(target):
  try:
    aot.device(target)
  except aot.Unavailable as reason:
    pytest.skip(str(reason))


@pytest.mark.full
@pytest.mark.parametrize('target, name, direction, heads, width', CASES)
def test_no_copies_and_hardly_more_than_the_floor(
    target, name, direction, heads, width):
  _require(target)
  found = layers.measure(name, direction, heads, width, target)
  assert not found['copies']
  assert found['ratio'] <= MOST, found


@pytest.mark.full
@pytest.mark.parametrize('direction, most', (('forward', 1.01), ('both', 1.08)))
def test_in_triton_lightning_makes_all_gradients_at_once(direction, most):
  """At head width 32, the Hopper kernels leave the work to Triton."""
  _require('h200')
  found = layers.measure('lightning', direction, 4, 32, 'h200')
  assert not found['copies']
  assert found['ratio'] <= most, found


@pytest.mark.full
def test_plain_xla_moves_more():
  """A layer without its kernel exceeds the limit that layers with one keep."""
  _require('v5e')
  found = layers.measure('linear_transformer', 'both', 4, 64, 'v5e', 'xla')
  assert found['ratio'] > 1.1 * MOST, found


def test_floor_of_a_layer_counted_by_hand():
  """B = 2, L = 8, D = 4: a tensor has 128 bytes and a weight matrix 64."""
  def floor(name, direction):
    return layers.floor(name, direction, 4, batch=2, length=8)

  # x -> q k v: 4 tensors. q k v -> o: 4. With an output projection o -> y: 2.
  assert floor('simpletron', 'forward') == 8 * 128 + 3 * 64
  assert floor('linear_transformer', 'forward') == 10 * 128 + 4 * 64
  # Backward: dy -> do: 2 tensors. o dy -> dWo: 2. q k v do -> dq dk dv: 7.
  # dq dk dv -> dx: 4. x dq dk dv -> dW: 4. Lightning's norm: 1.
  assert floor('linear_transformer', 'both') == 29 * 128 + 3 * 4 * 64
  assert floor('lightning', 'both') == 30 * 128 + 3 * 4 * 64
