"""Differentiable call of the norm with its projection."""

import functools

import jax

from kernels import dispatch


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def run(kernel, eps, interpret, o_NxE, weight_ExD, bias_D):
  """Returns y [N, D], computed by a named kernel.

  A kernel's module has two functions besides `supported`:
    forward(o, w, b, eps, interpret, save) -> (y in the dtype of o, values for
      the backward pass or None without `save`), where w is in the dtype of o
      and b is float32;
    backward(saved, dy, eps, interpret) -> gradients of o in its dtype, and of
      w and b in float32.

  Args:
    kernel: a kernel that can run.
    eps: a number.
    interpret: the interpreter's parameters or None.
    o_NxE: tokens.
    weight_ExD, bias_D: float32.
  """
  return _forward(kernel, eps, interpret, o_NxE, weight_ExD, bias_D, False)[0]


def _forward(kernel, eps, interpret, o_NxE, weight_ExD, bias_D, save=True):
  module = dispatch.backend('norm_project', kernel)
  w_ExD = weight_ExD.astype(o_NxE.dtype)
  return module.forward(o_NxE, w_ExD, bias_D, eps, interpret, save)


def _backward(kernel, eps, interpret, saved, dy_NxD):
  module = dispatch.backend('norm_project', kernel)
  return module.backward(saved, dy_NxD, eps, interpret)


run.defvjp(_forward, _backward)
