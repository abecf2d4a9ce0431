"""Differentiable call of gated linear attention."""

import functools
from typing import Any, NamedTuple

import jax

from lra.kernels import dispatch


class Options(NamedTuple):
  """Options compiled into a program."""
  scale: float = 1.0
  interpret: Any = None


class Inputs(NamedTuple):
  """Masked arrays of a call; see `lra.kernels.gated_linear_attention`."""
  q: jax.Array
  k: jax.Array
  v: jax.Array
  log_decay: jax.Array
  state: jax.Array | None


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(kernel, options, inputs):
  """Returns (out, final state), computed by a named kernel.

  A kernel's module has two functions besides `supported`:
    forward(inputs, options, save) -> (out [B, L, H, E] in the dtype of v, final
      state, further values for the backward pass, or None without `save`);
    backward(inputs, saved, do, dfinal, options) -> gradients of q, k, v, the
      log decays and the initial state.
  """
  module = dispatch.backend('gated', kernel)
  return module.forward(inputs, options, save=False)[:2]


def _forward(kernel, options, inputs):
  module = dispatch.backend('gated', kernel)
  out, final, saved = module.forward(inputs, options, save=True)
  return (out, final), (inputs, saved)


def _backward(kernel, options, residuals, cotangents):
  inputs, saved = residuals
  module = dispatch.backend('gated', kernel)
  *grads, dstate = module.backward(inputs, saved, *cotangents, options)
  return (Inputs(*grads, None if inputs.state is None else dstate),)


attend.defvjp(_forward, _backward)
