"""Matmuls of activations and weights, with gradients that suit the device.

On a CPU the gradient of the weights is summed over L for each example and then
over B: a dense layer takes three quarters of the time, because XLA does not
copy a factor. On a GPU one Pallas kernel computes both gradients of a narrow
layer.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.kernels import axes, dispatch, meshes


def einsum(spec: str, x: jax.Array, weight: jax.Array, precision=None,
           dtype: jnp.dtype | None = None) -> jax.Array:
  """Computes `jnp.einsum` of activations and weights, fast on a CPU.

  In `spec`, such as 'bld,hfd->blhf', the first axis of x must be the first of
  the result and no axis of the weights, and no index may occur in one operand
  alone. The result has the dtype of x by default, and no forward-mode
  derivative.
  """
  return _einsum(spec, precision, dtype or x.dtype, x, weight)


def _dot_general(x, weight, dimension_numbers, precision=None,
                 preferred_element_type=None):
  if kernels.platform() == 'cpu' and x.ndim == 3:
    return einsum('bli,io->blo', x, weight, precision, preferred_element_type)
  return jax.lax.dot_general(x, weight, dimension_numbers, precision,
                             preferred_element_type)


# Equal to `flax.linen.Dense`, but uses the matmuls of this module.
Dense = functools.partial(nn.Dense, dot_general=_dot_general)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _einsum(spec, precision, dtype, x, weight):
  return jnp.einsum(spec, x, weight, precision=precision,
                    preferred_element_type=dtype)


def _forward(spec, precision, dtype, x, weight):
  return _einsum(spec, precision, dtype, x, weight), (x, weight)


def _backward(spec, precision, dtype, operands, g):
  del dtype  # g has this dtype
  x, weight = operands
  ins, of_weight, outs = spec.replace('->', ',').split(',')
  product = functools.partial(
      jnp.einsum, precision=precision, preferred_element_type=g.dtype)
  dx = product(f'{outs},{of_weight}->{ins}', g, weight.astype(g.dtype))
  dw_B = product(f'{ins},{outs}->{ins[0]}{of_weight}', x.astype(g.dtype), g)
  return dx.astype(x.dtype), dw_B.sum(0).astype(weight.dtype)


_einsum.defvjp(_forward, _backward)


def product(x_BxLxD, weight_DxE) -> jax.Array:
  """Returns x W in the dtype of x: [B, L, E]."""
  kernel = dispatch.triton_module('dense', *weight_DxE.shape, x_BxLxD.dtype)
  if meshes.splits_tokens() or kernel is None:
    return x_BxLxD @ weight_DxE.astype(x_BxLxD.dtype)
  run = lambda *operands: _product(kernel, *axes.alike(operands))
  return kernels.over_tokens(run, pallas=True)(x_BxLxD, weight_DxE)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(kernel, x, weight):
  del kernel  # only the gradients use it
  return x @ weight.astype(x.dtype)


def _forward_product(kernel, x, weight):
  return _product(kernel, x, weight), (x, weight)


def _backward_product(kernel, saved, dy):
  x, weight = saved
  dx, dweight = kernel.gradients(x, weight.astype(x.dtype), dy)
  return dx, dweight.astype(weight.dtype)


_product.defvjp(_forward_product, _backward_product)
