"""Differentiation of the operations that are not causal."""

import functools

import jax

from kernels import dispatch


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def attend(op, implementation, options, q, k, v, mask):
  """out [B, L, H, Dh] of an implementation of 'linear' or 'simpletron'."""
  return _call(op, implementation, options, (q, k, v, mask), save=False)[0]


def _call(op, implementation, options, arrays, save):
  module = dispatch.backend(op, implementation)
  call = dispatch.over_batch(
    implementation, lambda *x: module.forward(*x, options, save)
  )
  return call(*arrays)


def _forward(op, implementation, options, *arrays):
  out, saved = _call(op, implementation, options, arrays, save=True)
  return out, (*arrays, saved)


def _backward(op, implementation, options, residuals, do):
  module = dispatch.backend(op, implementation)
  call = dispatch.over_batch(
    implementation, lambda *x: module.backward(*x, options)
  )
  return (*call(*residuals, do), None)


attend.defvjp(_forward, _backward)
