"""The protocol of the kernels, and their custom gradient.

A kernel is a module `lra.kernels.<op>.<kernel>` with three functions:

  supported(shape, dtype, **needs) raises NotImplementedError for operands that
    the kernel cannot take; arguments are those of `dispatch.resolve`.
  forward(inputs, options, save) -> (results, saved), where `save` tells whether
    a backward pass follows; `saved` may be None without it.
  backward(inputs, saved, cotangents, options) -> gradients, like inputs;
    cotangents are like results. Without this function, JAX differentiates
    `forward`.

`inputs` is a tuple of arrays, `options` a hashable tuple of numbers, both
defined by the operation. The first kernel of an operation, plain XLA, takes
every valid call and needs no `supported`.
"""

import functools

import jax

from lra.kernels import axes, dispatch


def run(op, kernel, options, inputs):
  """Returns the results of a kernel that can run; differentiable."""
  inputs = axes.alike(inputs)
  module = dispatch.backend(op, kernel)
  if not hasattr(module, 'backward'):
    return module.forward(inputs, options, False)[0]
  return _run(op, kernel, options, inputs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _run(op, kernel, options, inputs):
  return dispatch.backend(op, kernel).forward(inputs, options, False)[0]


def _forward(op, kernel, options, inputs):
  module = dispatch.backend(op, kernel)
  results, saved = module.forward(inputs, options, True)
  return results, (inputs, saved)


def _backward(op, kernel, options, residuals, cotangents):
  module = dispatch.backend(op, kernel)
  return (module.backward(*residuals, cotangents, options),)


_run.defvjp(_forward, _backward)
