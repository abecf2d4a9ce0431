"""The differentiable call of linear attention."""

import functools

import jax

from kernels import dispatch


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(kernel, options, q, k, v, mask):
  """out [B, L, H, Dh] by the named kernel; see `api.linear_attention`."""
  module = dispatch.backend('linear', kernel)
  return module.forward(q, k, v, mask, options, save=False)[0]


def _forward(kernel, options, *arrays):
  module = dispatch.backend('linear', kernel)
  out, saved = module.forward(*arrays, options, save=True)
  return out, (*arrays, saved)


def _backward(kernel, options, residuals, do):
  module = dispatch.backend('linear', kernel)
  return (*module.backward(*residuals, do, options), None)


attend.defvjp(_forward, _backward)
