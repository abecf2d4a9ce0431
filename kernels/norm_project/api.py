"""RMS norm and projection in one: the public function and its dispatch."""

import functools

import jax
import jax.numpy as jnp

from lra.kernels import axes, checks, dispatch


def norm_project(o, *, weight, bias, eps=1e-6, kernel='auto'):
  """Applies an RMS norm (arXiv 1910.07467, equation 4) and a projection.

    y_i = r_i (o_i W) + b,  r_i = (mean_e o_ie^2 + eps)^(-1/2)

  The caller multiplies the norm's own scale into the rows of W. No normalised
  copy of o is written.

  Args:
    o: [B, L, E], float32 or bfloat16. Means and sums are float32.
    weight: W, float32 [E, D]; multiplied in the dtype of o.
    bias: b, float32 [D].
    eps: a Python number.
    kernel: one of `kernels.OPS['norm_project']`, or 'auto': a kernel for this
      device if it supports the operands, else 'xla', whose float32 matmuls have
      JAX's default precision.

  Returns:
    y, [B, L, D] in the dtype of o.

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named kernel cannot run; gives the reason.
  """
  checks.check_tokens('o', o)
  width = jnp.shape(weight)[-1:]
  checks.check_float32('weight', weight, (o.shape[-1], *width), '[E, D]')
  checks.check_float32('bias', bias, width, '[D]')
  eps = checks.check_number('eps', eps)
  o, weight, bias = axes.alike((o, weight, bias))
  name = dispatch.resolve('norm_project', kernel, o.shape, o.dtype)
  y_NxD = _run(name, eps, dispatch.interpret_params(),
               o.reshape(-1, o.shape[-1]), weight, bias)
  return y_NxD.reshape(*o.shape[:2], -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _run(kernel, eps, interpret, o_NxE, weight_ExD, bias_D):
  """Returns y [N, D], computed by a named kernel.

  A kernel's module has two functions besides `supported`:
    forward(o, w, b, eps, interpret, save) -> (y in the dtype of o, values for
      the backward pass or None without `save`), where w is in the dtype of o
      and b is float32;
    backward(saved, dy, eps, interpret) -> gradients of o in its dtype, and of
      w and b in float32.
  """
  return _forward(kernel, eps, interpret, o_NxE, weight_ExD, bias_D, False)[0]


def _forward(kernel, eps, interpret, o_NxE, weight_ExD, bias_D, save=True):
  module = dispatch.backend('norm_project', kernel)
  w_ExD = weight_ExD.astype(o_NxE.dtype)
  return module.forward(o_NxE, w_ExD, bias_D, eps, interpret, save)


def _backward(kernel, eps, interpret, saved, dy_NxD):
  module = dispatch.backend('norm_project', kernel)
  return module.backward(saved, dy_NxD, eps, interpret)


_run.defvjp(_forward, _backward)
