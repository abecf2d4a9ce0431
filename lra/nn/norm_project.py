"""An RMS norm and the projection after it, without a pass between them.

  y_i = r_i (o_i W) + b,  r_i = (mean_e o_ie^2 + eps)^(-1/2)

The norm's own scale is folded into W by the caller. A compiler that joins
what comes before and after a product with it (a TPU's does) moves nothing
else than the product, but for one reading of o for the mean. The gradients are

  dW = sum_i (r_i o_i)^T dy_i
  do_i = r_i (dy_i W^T) - r_i^2 (dy_i . (y_i - b)) o_i / E

where dy . (y - b) stands for the gradient of r, which needs no unscaled
product.

Shapes: N tokens (B times L), E width of o, D width of y.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

EPS = 1e-6  # that of flax.linen.RMSNorm


def norm_project(o_BxLxE: jax.Array, w_ExD: jax.Array, b_D: jax.Array,
                 eps: float = EPS) -> jax.Array:
  """y as above, [B, L, D] in the dtype of o; w and b in the same dtype."""
  y_NxD = _rows(o_BxLxE.reshape(-1, o_BxLxE.shape[-1]), w_ExD, b_D, eps)
  return y_NxD.reshape(*o_BxLxE.shape[:2], -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _rows(o_NxE, w_ExD, b_D, eps):
  return _forward(o_NxE, w_ExD, b_D, eps)[0]


def _forward(o_NxE, w_ExD, b_D, eps):
  square_Nx1 = jnp.mean(
      jnp.square(o_NxE.astype(jnp.float32)), -1, keepdims=True)
  r_Nx1 = jax.lax.rsqrt(square_Nx1 + eps)
  y_NxD = _dot(o_NxE, w_ExD) * r_Nx1 + b_D
  y_NxD = y_NxD.astype(o_NxE.dtype)
  return y_NxD, (o_NxE, w_ExD, b_D, r_Nx1, y_NxD)


def _backward(eps, residuals, dy_NxD):
  o_NxE, w_ExD, b_D, r_Nx1, y_NxD = residuals
  dtype = o_NxE.dtype
  dy32_NxD = dy_NxD.astype(jnp.float32)
  dot_Nx1 = jnp.sum(dy32_NxD * (y_NxD - b_D), -1, keepdims=True)
  factor_Nx1 = jnp.square(r_Nx1) * dot_Nx1 / o_NxE.shape[-1]
  do_NxE = _dot(dy_NxD, w_ExD.T) * r_Nx1 - factor_Nx1 * o_NxE
  # Left to itself a TPU's compiler puts the tokens last, and copies.
  do_NxE = with_layout_constraint(do_NxE.astype(dtype), Layout((0, 1)))
  dw_ExD = _dot((o_NxE * r_Nx1).astype(dtype).T, dy_NxD)
  db_D = dy32_NxD.sum(0)
  return do_NxE, dw_ExD.astype(dtype), db_D.astype(dtype)


_rows.defvjp(_forward, _backward)


def _dot(a, b):
  return jnp.dot(a, b, preferred_element_type=jnp.float32)
