"""An RMS norm and the projection after it, in plain XLA.

A compiler that joins what comes before and after a product with it (a TPU's
does) moves nothing else than the product, but for one reading of o for the
mean. With y kept, the gradients are

  dW = sum_i (r_i o_i)^T dy_i
  do_i = r_i (dy_i W^T) - r_i^2 (dy_i . (y_i - b)) o_i / E

where dy . (y - b) stands for the gradient of r, which needs no unscaled
product.
"""

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def forward(o_NxE, w_ExD, b_D, eps, interpret, save):
  """(y, what `backward` needs or None); see `kernels.norm_project.vjp`."""
  del interpret
  square_Nx1 = jnp.mean(
    jnp.square(o_NxE.astype(jnp.float32)), -1, keepdims=True
  )
  r_Nx1 = jax.lax.rsqrt(square_Nx1 + eps)
  y_NxD = _dot(o_NxE, w_ExD) * r_Nx1 + b_D
  y_NxD = y_NxD.astype(o_NxE.dtype)
  return y_NxD, (o_NxE, w_ExD, b_D, r_Nx1, y_NxD) if save else None


def backward(saved, dy_NxD, eps, interpret):
  """Gradients of o in its dtype, of W and b in float32."""
  del eps, interpret
  o_NxE, w_ExD, b_D, r_Nx1, y_NxD = saved
  dtype = o_NxE.dtype
  dy32_NxD = dy_NxD.astype(jnp.float32)
  dot_Nx1 = jnp.sum(dy32_NxD * (y_NxD - b_D), -1, keepdims=True)
  factor_Nx1 = jnp.square(r_Nx1) * dot_Nx1 / o_NxE.shape[-1]
  do_NxE = _dot(dy_NxD, w_ExD.T) * r_Nx1 - factor_Nx1 * o_NxE
  # Left to itself a TPU's compiler puts the tokens last, and copies.
  do_NxE = with_layout_constraint(do_NxE.astype(dtype), Layout((0, 1)))
  dw_ExD = _dot((o_NxE * r_Nx1).astype(dtype).T, dy_NxD)
  return do_NxE, dw_ExD, dy32_NxD.sum(0)


def _dot(a, b):
  return jnp.dot(a, b, preferred_element_type=jnp.float32)
