"""An RMS norm and the projection after it, without a pass between them.

  y_i = r_i (o_i W),  r_i = (mean_e o_ie^2 + eps)^(-1/2)

The norm's own scale is folded into W by the caller. A compiler that joins
what comes before and after a product with it (a TPU's does) moves nothing
else than the product, but for one reading of o for the mean. With e_i = r_i
dy_i the gradients are

  dW = sum_i o_i^T e_i
  do_i = e_i W^T - r_i^2 (dy_i . y_i) o_i / E

where dy . y stands for the gradient of r, which needs no unscaled product.

Shapes: B batch, L length, E width of o, D width of y.
"""

import functools

import jax
import jax.numpy as jnp

EPS = 1e-6  # that of flax.linen.RMSNorm


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def norm_project(o_BxLxE: jax.Array, w_ExD: jax.Array,
                 eps: float = EPS) -> jax.Array:
  """y as above, [B, L, D] in the dtype of o; w in the same dtype."""
  return _forward(o_BxLxE, w_ExD, eps)[0]


def _forward(o_BxLxE, w_ExD, eps):
  square_BxLx1 = jnp.mean(
      jnp.square(o_BxLxE.astype(jnp.float32)), -1, keepdims=True)
  r_BxLx1 = jax.lax.rsqrt(square_BxLx1 + eps)
  y_BxLxD = jnp.einsum('ble,ed->bld', o_BxLxE, w_ExD,
                       preferred_element_type=jnp.float32)
  y_BxLxD = (y_BxLxD * r_BxLx1).astype(o_BxLxE.dtype)
  return y_BxLxD, (o_BxLxE, w_ExD, r_BxLx1, y_BxLxD)


def _backward(eps, residuals, dy_BxLxD):
  o_BxLxE, w_ExD, r_BxLx1, y_BxLxD = residuals
  dtype = o_BxLxE.dtype
  dot_BxLx1 = jnp.sum(dy_BxLxD.astype(jnp.float32) * y_BxLxD, -1,
                      keepdims=True)
  e_BxLxD = (dy_BxLxD * r_BxLx1).astype(dtype)
  do_BxLxE = jnp.einsum('bld,ed->ble', e_BxLxD, w_ExD,
                        preferred_element_type=jnp.float32)
  factor_BxLx1 = jnp.square(r_BxLx1) * dot_BxLx1 / o_BxLxE.shape[-1]
  do_BxLxE = do_BxLxE - factor_BxLx1 * o_BxLxE
  dw_ExD = jnp.einsum('ble,bld->ed', o_BxLxE, e_BxLxD,
                      preferred_element_type=jnp.float32)
  return do_BxLxE.astype(dtype), dw_ExD.astype(dtype)


norm_project.defvjp(_forward, _backward)
