"""An RMS norm and the projection after it, in plain XLA.

With p_i = r_i (o_i W) kept, which is y without its bias, the gradients are

  dW = sum_i (r_i o_i)^T dy_i
  do_i = r_i (dy_i W^T) - r_i^2 (dy_i . p_i) o_i / E

A p computed from a rounded y would lose accuracy if the bias is large.
"""

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def forward(inputs, options, save):
  o_NxE, weight_ExD, bias_D = inputs
  w_ExD = weight_ExD.astype(o_NxE.dtype)
  square_Nx1 = jnp.mean(jnp.square(o_NxE.astype(jnp.float32)), -1,
                        keepdims=True)
  r_Nx1 = jax.lax.rsqrt(square_Nx1 + options.eps)
  p_NxD = _dot(o_NxE, w_ExD) * r_Nx1
  y_NxD = (p_NxD + bias_D).astype(o_NxE.dtype)
  saved = (w_ExD, r_Nx1, p_NxD.astype(o_NxE.dtype))
  return y_NxD, saved if save else None


def backward(inputs, saved, dy_NxD, options):
  del options
  o_NxE, (w_ExD, r_Nx1, p_NxD) = inputs.o, saved
  dtype = o_NxE.dtype
  dy32_NxD = dy_NxD.astype(jnp.float32)
  dot_Nx1 = jnp.sum(dy32_NxD * p_NxD, -1, keepdims=True)
  factor_Nx1 = jnp.square(r_Nx1) * dot_Nx1 / o_NxE.shape[-1]
  do_NxE = _dot(dy_NxD, w_ExD.T) * r_Nx1 - factor_Nx1 * o_NxE
  # By default a TPU's compiler would put the tokens last, which needs a copy.
  do_NxE = with_layout_constraint(do_NxE.astype(dtype), Layout((0, 1)))
  dw_ExD = _dot((o_NxE * r_Nx1).astype(dtype).T, dy_NxD)
  return type(inputs)(do_NxE, dw_ExD, dy32_NxD.sum(0))


def _dot(a, b):
  return jnp.dot(a, b, preferred_element_type=jnp.float32)
