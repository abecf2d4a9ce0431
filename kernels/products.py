"""Matrix products for the kernels in plain XLA."""

import functools

import jax
import jax.numpy as jnp

from kernels import chunks, dispatch


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def einsum(spec, a, b):
  """jnp.einsum of two arrays of one dtype, with float32 sums and result.

  The gradient of the result is rounded to the dtype of the operands, so that
  the products of the backward pass are of the same kind. No index may occur
  in one operand alone.
  """
  prec = chunks.precision(a.dtype)
  if dispatch.platform() == 'cpu':
    # XLA's CPU backend has no bf16 products with float32 sums for some
    # layouts. Products of bf16 are exact in float32: the same result.
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
  return jnp.einsum(
    spec, a, b, precision=prec, preferred_element_type=jnp.float32
  )


def _forward(spec, a, b):
  return einsum(spec, a, b), (a, b)


def _backward(spec, operands, ct):
  a, b = operands
  left, right, out = spec.replace('->', ',').split(',')
  ct = ct.astype(a.dtype)
  da = einsum(f'{out},{right}->{left}', ct, b)
  db = einsum(f'{left},{out}->{right}', a, ct)
  return da.astype(a.dtype), db.astype(b.dtype)


einsum.defvjp(_forward, _backward)
