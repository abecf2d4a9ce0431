"""Matmuls for the kernels in plain XLA."""

import functools

import jax
import jax.numpy as jnp

from lra.kernels import chunks, dispatch


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def einsum(spec, a, b):
  """Computes jnp.einsum of two arrays of one dtype with float32 sums.

  The result is float32. Its gradient is rounded to the dtype of the operands,
  so that matmuls of the backward pass have the same dtypes. No index may occur
  in one operand alone.
  """
  prec = chunks.precision(a.dtype)
  if dispatch.platform() == 'cpu':
    # XLA's CPU backend lacks bf16 matmuls with float32 sums for some layouts.
    # Products of two bf16 numbers are exact in float32: the result is equal.
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
  return jnp.einsum(spec, a, b, precision=prec,
                    preferred_element_type=jnp.float32)


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
