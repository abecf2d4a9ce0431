"""Differentiable call of the scan.

The gradients of h_t = a_t h_(t-1) + x_t, with dy_t the gradient of h_t from
outside, come from a scan in the other direction,

  g_t = dy_t + a_(t+1) g_(t+1),  dx_t = g_t,  da_t = h_(t-1) g_t

(for complex numbers without conjugation, as JAX defines gradients). The forward
pass saves a and h, which is its result anyway; nothing is computed twice.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels import dispatch
from lra.kernels.scan import numbers


class Options(NamedTuple):
  """Options compiled into a program."""
  reverse: bool = False
  interpret: Any = None


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def scan(kernel, options, x, a, state):
  """Returns (h, last state), computed by a named kernel.

  A kernel's module has one function besides `supported`:
    scan(x, a, state, *, reverse, late, interpret) -> (h in the dtype of x, last
      state [B, E] in the dtype of states). Without `late`, s = a_t s + x_t and
      h_t = s; with it, h_t = s + x_t and s = a_t h_t.

  Args:
    kernel: one of `kernels.OPS['scan']` that can run.
    options: `Options`.
    x: [B, L, E].
    a: [E] or [B, L, E].
    state: [B, E] or None.
  """
  return _forward(kernel, options, x, a, state)[0]


def _forward(kernel, options, x, a, state):
  h, last = dispatch.backend('scan', kernel).scan(
      x, a, state, reverse=options.reverse, late=False,
      interpret=options.interpret)
  return (h, last), (a, h, state)


def _backward(kernel, options, saved, cotangents):
  a, h, state = saved
  dy, dlast = cotangents
  dx, dstate = dispatch.backend('scan', kernel).scan(
      dy, a, dlast, reverse=not options.reverse, late=True,
      interpret=options.interpret)
  g = dx.astype(dstate.dtype)
  da = _constant(h, g, state, options.reverse) if a.ndim == 1 else (
      _before(h, state, options.reverse) * g)
  return dx, da.astype(a.dtype), None if state is None else dstate


def _constant(h, g, state, reverse):
  """Returns the sum of h_(t-1) g_t over batch and tokens, [E].

  Slices that are summed at once are not copied, as a shifted h would be.
  """
  wide = h.astype(g.dtype)
  before, after, first = (wide[:, 1:], g[:, :-1], g[:, -1]) if reverse else (
      wide[:, :-1], g[:, 1:], g[:, 0])
  da = (before * after).sum((0, 1))
  return da if state is None else da + (state * first).sum(0)


def _before(h, state, reverse):
  """Returns h_(t-1), in the dtype of states."""
  wide = h.astype(numbers.wide(h.dtype))
  if state is None:
    state = jnp.zeros_like(wide[:, 0])
  if reverse:
    return jnp.concatenate([wide[:, 1:], state[:, None]], axis=1)
  return jnp.concatenate([state[:, None], wide[:, :-1]], axis=1)


scan.defvjp(_forward, _backward)
