"""The passes of a scan, from a kernel's walk in both directions.

The gradients of h_t = a_t h_(t-1) + x_t, with dy_t the gradient of h_t from
outside, come from a scan in the other direction,

  g_t = dy_t + a_(t+1) g_(t+1),  dx_t = g_t,  da_t = h_(t-1) g_t

(for complex numbers without conjugation, as JAX defines gradients). The forward
pass saves h, which is its result anyway; nothing is computed twice.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels.scan import numbers


class Options(NamedTuple):
  reverse: bool = False
  interpret: Any = None


class Inputs(NamedTuple):
  """Arrays of a scan: x [B, L, E], a [E] or [B, L, E], state [B, E] or None."""
  x: jax.Array
  a: jax.Array
  state: jax.Array | None


def of(scan):
  """Returns the functions `forward` and `backward` of a kernel.

  `scan` returns (h in the dtype of x, last state [B, E] in that of states).
  Without `late`, s = a_t s + x_t and h_t = s; with it, h_t = s + x_t and
  s = a_t h_t.
  """
  def forward(inputs, options, save):
    del save
    h, last = scan(*inputs, reverse=options.reverse, late=False,
                   interpret=options.interpret)
    return (h, last), h

  def backward(inputs, h, cotangents, options):
    _, a, state = inputs
    dy, dlast = cotangents
    dx, dstate = scan(dy, a, dlast, reverse=not options.reverse, late=True,
                      interpret=options.interpret)
    g = dx.astype(dstate.dtype)
    da = _constant(h, g, state, options.reverse) if a.ndim == 1 else (
        _before(h, state, options.reverse) * g)
    return Inputs(dx, da.astype(a.dtype), None if state is None else dstate)

  return forward, backward


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
