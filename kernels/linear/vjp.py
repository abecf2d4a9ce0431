"""The differentiable call of linear attention."""

import functools

import jax

from kernels import batching, dispatch


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(kernel, options, q, k, v, mask):
  """out [B, L, H, Dh] by the named kernel; see `api.linear_attention`."""
  return _call(kernel, options, (q, k, v, mask), save=False)[0]


def _call(kernel, options, arrays, save):
  module = dispatch.backend('linear', kernel)
  call = batching.over_batch(
    kernel, lambda *x: module.forward(*x, options, save)
  )
  return call(*arrays)


def _forward(kernel, options, *arrays):
  out, saved = _call(kernel, options, arrays, save=True)
  return out, (*arrays, saved)


def _backward(kernel, options, residuals, do):
  module = dispatch.backend('linear', kernel)
  call = batching.over_batch(kernel, lambda *x: module.backward(*x, options))
  return (*call(*residuals, do), None)


attend.defvjp(_forward, _backward)
