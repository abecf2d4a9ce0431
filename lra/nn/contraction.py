"""Dense layers of [B, L, D] whose gradients a processor computes fast.

JAX sums the gradient of the weights over B and L at once and transposes it
after that; XLA's CPU backend makes of this a copy of a factor, element by
element, and a product of a slower kind. Summed over L for each example, and
then over B, a layer takes three quarters of the time.
"""

import functools

import flax.linen as nn
import jax

import kernels


def dot_general(x: jax.Array, weight: jax.Array, dimension_numbers,
                precision=None, preferred_element_type=None) -> jax.Array:
  """`jax.lax.dot_general` with other steps to the gradient of `weight`.

  Args:
    x: [..., ins].
    weight: [ins, outs].
    dimension_numbers: of x's last axis and the weight's first.
    precision, preferred_element_type: see `jax.lax`.

  Returns:
    [..., outs]. On a processor x of three axes has no derivative in forward
    mode; all else is `jax.lax.dot_general` itself.
  """
  plain = preferred_element_type is None
  if kernels.platform() == 'cpu' and x.ndim == 3 and plain:
    return _product(x, weight, precision)
  return jax.lax.dot_general(x, weight, dimension_numbers, precision,
                             preferred_element_type)


# `flax.linen.Dense` by it: the same parameters and results.
Dense = functools.partial(nn.Dense, dot_general=dot_general)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x_BxLxI, weight_IxO, precision):
  return jax.numpy.matmul(x_BxLxI, weight_IxO, precision=precision)


def _forward(x_BxLxI, weight_IxO, precision):
  return _product(x_BxLxI, weight_IxO, precision), (x_BxLxI, weight_IxO)


def _backward(precision, operands, g_BxLxO):
  x_BxLxI, weight_IxO = operands
  product = functools.partial(jax.lax.dot_general, precision=precision)
  dx_BxLxI = product(g_BxLxO, weight_IxO, (((2,), (1,)), ((), ())))
  dw_BxIxO = product(x_BxLxI, g_BxLxO, (((1,), (1,)), ((0,), (0,))))
  return dx_BxLxI, dw_BxIxO.sum(0)


_product.defvjp(_forward, _backward)
