"""Embedding whose gradient is summed in a fixed order.

XLA sums the gradients dy of all tokens with an id by a scatter-add. On a GPU
the order of its atomic additions differs from run to run; on a TPU it goes row
by row. For a small table this module computes the matmul one_hot(ids)^T dy
instead, on a GPU by a Pallas kernel.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.kernels import axes, dispatch
from lra.nn import arrays

SMALL = 512  # most ids for the matmul, which costs too much with more


class Embedding(nn.Embed):
  """Maps each id to its vector: [B, L] -> [B, L, D]."""

  def __call__(self, ids_BxL):
    (table_VxD,) = self.promote_dtype(self.embedding, dtype=self.dtype)
    # On a CPU a scatter is faster than the matmul, and its order is fixed.
    by_product = len(table_VxD) <= SMALL and kernels.platform() != 'cpu'
    if not by_product:
      return kernels.over_tokens(_rows_of)(ids_BxL, table_VxD)
    kernel = dispatch.triton_module(
        'embedding', len(table_VxD), table_VxD.dtype)
    rows_of = lambda *operands: _rows_of_few(kernel, *axes.alike(operands))
    return kernels.over_tokens(rows_of, kernel is not None)(ids_BxL, table_VxD)


def _rows_of(ids, table):
  return jnp.take(table, ids, axis=0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rows_of_few(kernel, ids, table):
  del kernel  # only the gradient uses it
  return _rows_of(ids, table)


def _forward(kernel, ids, table):
  return _rows_of_few(kernel, ids, table), (ids, table)


def _backward(kernel, saved, dy):
  ids, table = saved
  if kernel is not None:
    return None, kernel.gradient(ids, dy, len(table)).astype(table.dtype)
  which = jax.nn.one_hot(ids.reshape(-1), len(table), dtype=dy.dtype)
  exact = arrays.at_least_float32(dy.dtype)
  # Without the precision a GPU would round dy to the 10 bits of TF32.
  sums = jnp.matmul(
      which.T, dy.reshape(-1, dy.shape[-1]), preferred_element_type=exact,
      precision=jax.lax.Precision.HIGHEST)
  return None, sums.astype(table.dtype)


_rows_of_few.defvjp(_forward, _backward)
