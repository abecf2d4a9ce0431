"""Gated linear attention and the delta rules in plain XLA: chunks of tokens.

A loop over segments keeps temporary memory independent of the length. It saves
the states before segments. The backward pass computes a segment again from its
state and then its gradients; `chunk` has the formulas.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import axes, dispatch
from lra.kernels.gated import chunk, steps

CHUNK = 64  # most tokens of a chunk
LEAST = {'cpu': 16, 'gpu': 32}  # fewest; `CHUNK` elsewhere
SEGMENT, CPU_SEGMENT = 2048, 256  # tokens; a CPU's caches hold the shorter one
STEPS = 320  # largest N E of a general rule that a CPU goes token by token
STEP_ROWS = 64  # fewest heads of all examples then: they fill vector registers
STEP_SEGMENT = 16  # tokens of a segment then


def forward(inputs, options, save):
  """Saves the states before segments, [segments, B, H, N, E]."""
  form, split = _plan(inputs)
  x, state = inputs._replace(state=None), inputs.state
  batch, length, heads, width = x.v.shape
  if state is None:
    state = axes.zeros((batch, heads, x.k.shape[-1], width), jnp.float32, x.v)

  def body(state, x):
    after, out = form(options.scale, state, x)
    return after, (out, state if save else None)

  state, (out, before) = lax.scan(body, state, jax.tree.map(split, x))
  return (_join(out, x.v), state), before


def backward(inputs, saved, cotangents, options):
  (do, dstate), (form, split) = cotangents, _plan(inputs)
  x = inputs._replace(state=None)

  def body(dstate, given):
    x, before, do = given
    _, pull = jax.vjp(functools.partial(form, options.scale), before, x)
    return pull((dstate, do))

  dstate, grads = lax.scan(
      body, dstate, (jax.tree.map(split, x), saved, split(do)), reverse=True)
  grads = jax.tree.map(_join, grads, x)
  return grads._replace(state=None if inputs.state is None else dstate)


def _plan(x):
  """Returns the function of a segment, and the one that cuts arrays."""
  tokens, width = SEGMENT, x.k.shape[-1]
  least = LEAST.get(dispatch.platform(), CHUNK)
  if dispatch.platform() == 'cpu':
    batch, _, heads, values = x.v.shape
    if (x.a is not None and width * values <= STEPS
        and batch * heads >= STEP_ROWS):
      return steps.segment, functools.partial(_split, 1, STEP_SEGMENT)
    tokens = CPU_SEGMENT
  elif x.beta is None and x.a is None:
    width = max(width, x.v.shape[-1])
  # Least work and memory traffic: about as many tokens as channels.
  size = min(CHUNK, max(least, _power(width)), _power(x.q.shape[1]))
  return chunk.segment, functools.partial(_split, size, tokens // size)


def _power(number):
  """Returns the smallest power of two that is at least `number`."""
  return 1 << (number - 1).bit_length()


def _split(size, most, x):
  """Returns chunks of segments: [segments, n, B, H, C, ...] of [B, L, H, ...].
  """
  length = x.shape[1]
  chunks = -(-length // size)
  count = -(-chunks // most)
  each = -(-chunks // count)
  x = jnp.pad(x, [(0, 0), (0, count * each * size - length)]
              + [(0, 0)] * (x.ndim - 2))
  x = x.reshape(len(x), count, each, size, *x.shape[2:])
  return jnp.transpose(x, (1, 2, 0, 4, 3, *range(5, x.ndim)))


def _join(x, like):
  """Inverts `_split`: returns x in the shape of `like`."""
  x = jnp.transpose(x, (2, 0, 1, 4, 3, *range(5, x.ndim)))
  return x.reshape(len(x), -1, *x.shape[4:])[:, :like.shape[1]]
