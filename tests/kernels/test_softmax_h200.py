"""Compiles programs that call cuDNN's attention for an H200, without a GPU.

The compiler does not check the call: only a GPU shows that cuDNN accepts it.
"""

import math
import re

import jax.numpy as jnp
import pytest

from lra import kernels
from lra.kernels.softmax import cudnn
from tests.helpers.gradients import descriptions, with_gradients

pytestmark = pytest.mark.full


def _compiled(kernel, length, keys, masked):
  """Compiles both passes for bfloat16 [2, length, 4, 64] and `keys` keys."""
  describe = descriptions('h200')
  if cudnn._not_loaded():
    pytest.skip(cudnn._not_loaded())

  x, y = (describe((2, n, 4, 64), jnp.bfloat16) for n in (length, keys))
  mask = describe((2, keys), bool) if masked else None
  both = with_gradients(
    lambda q, k, v, mask: kernels.softmax_attention(
      q, k, v, mask=mask, kernel=kernel
    )
  )
  with kernels.target('gpu'):
    program = both.lower(x, x, y, y, mask).compile()
  text = program.as_text()
  targets = set(re.findall(r'custom_call_target="(__cudnn[^"]*)"', text))
  # The call's configuration string contains the shape of the weights.
  shapes = set(re.findall(r'\w\[([\d,]+)\]', text))
  largest = max(math.prod(map(int, s.split(','))) for s in shapes)
  return targets, largest >= 2 * 4 * length * keys


CUDNN = {'__cudnn$fmhaSoftmax', '__cudnn$fmhaSoftmaxBackward'}


@pytest.mark.parametrize('masked', (False, True))
@pytest.mark.parametrize(
  'length, keys', [(1024, 1024), (4001, 4001), (1024, 2001)]
)
def test_the_program_calls_cudnn_and_keeps_no_weights(length, keys, masked):
  assert _compiled('auto', length, keys, masked) == (CUDNN, False)


def test_weights_would_be_seen():
  assert _compiled('dense', 1024, 1024, True) == (set(), True)
