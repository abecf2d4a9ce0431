"""Differentiable call of the linear operations."""

import functools

import jax

from kernels import dispatch, varying
from kernels.inputs import gradients


def attend(op, kernel, options, inputs):
  """Returns (out, final state or None), computed by a named kernel.

  A kernel's module has two functions besides `supported`:
    forward(inputs, options, save) -> (out [B, L, H, Dh], final state or None,
      further values for the backward pass, or None without `save`);
    backward(inputs, saved, do, dfinal, options) -> (gradients of q, k, v:
      three arrays or, for packed inputs, one [B, L, 3, H, Dh]; gradient of the
      bias or None; gradient of the initial state or None).

  dfinal is the gradient of the final state or None.

  Args:
    op: 'linear' or 'lightning'.
    kernel: one of its kernels that can run.
    options: options that are compiled in, with `return_state`.
    inputs: `kernels.inputs.Inputs`.
  """
  return _attend(op, kernel, options, varying.alike(inputs))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _attend(op, kernel, options, inputs):
  module = dispatch.backend(op, kernel)
  return module.forward(inputs, options, save=False)[:2]


def _forward(op, kernel, options, inputs):
  module = dispatch.backend(op, kernel)
  out, final, saved = module.forward(inputs, options, save=True)
  return (out, final), (inputs, saved)


def _backward(op, kernel, options, residuals, cotangents):
  inputs, saved = residuals
  module = dispatch.backend(op, kernel)
  return (
      gradients(inputs, *module.backward(inputs, saved, *cotangents, options)),)


_attend.defvjp(_forward, _backward)
