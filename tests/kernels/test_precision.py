"""Tests that float32 matmuls ask for full precision on accelerators.

A CPU never rounds to TF32, so the tests inspect the program, not the errors. On
an H200 the default precision gave softmax attention 40 times the allowed error.
"""

import jax
import jax.numpy as jnp
import pytest

from lra.kernels import dispatch
from tests.helpers import errors
from tests.helpers.products import at_the_highest

X = jax.ShapeDtypeStruct((2, 24, 2, 8), jnp.float32)
PLAIN = [
  (op, kernel)
  for op in errors.EVERY
  for kernel in dispatch.OPS[op]
  if kernel in ('xla', 'dense', 'chunked')
]


@pytest.mark.parametrize('dtype', ('float32', 'bfloat16'))
@pytest.mark.parametrize('op, kernel', PLAIN)
def test_only_float32_products_run_at_the_highest(op, kernel, dtype):
  def both(q, k, v, mask, do):
    def attend(*args):
      return errors.EVERY[op](*args, mask=mask, kernel=kernel)

    out, pull = jax.vjp(attend, q, k, v)
    return out, pull(do)

  x = X.update(dtype=jnp.dtype(dtype))
  mask = jax.ShapeDtypeStruct(X.shape[:2], bool)
  with dispatch.target('gpu'):  # on a CPU bfloat16 becomes float32
    program = jax.make_jaxpr(both)(x, x, x, mask, x)
  found = list(at_the_highest(program.jaxpr))
  assert len(found) >= 6  # forward 2, gradients 4
  # With bfloat16 inputs some sums, such as the normaliser, are float32.
  assert all(high == float32 for float32, high in found)
  assert dtype == 'float32' or not all(high for _, high in found)
