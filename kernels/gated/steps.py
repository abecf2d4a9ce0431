"""The general delta rule, token by token.

A CPU computes small states of large batches faster in this way than in chunks,
and compiles it faster. Shapes are those of `chunk.segment`, with chunks of one
token. Inside, the last axis counts the heads of all examples, which fills
vector registers.
"""

import jax
import jax.numpy as jnp
from jax import lax


def segment(scale, state, x):
  """Returns the state after a segment, and outputs [n, B, H, 1, E]."""
  shape, dtype = x.v.shape, x.v.dtype
  last = lambda y: jnp.swapaxes(y.reshape(shape[0], -1, y.shape[-1]), 1, 2)
  x = jax.tree.map(
      lambda y: last((y if y.ndim == 5 else y[..., None]).astype(jnp.float32)),
      x)
  first = jnp.moveaxis(state.reshape(-1, *state.shape[2:]), 0, 2)
  after, out = lax.scan(
      jax.checkpoint(_step, prevent_cse=False), first, x)
  return (jnp.moveaxis(after, 2, 0).reshape(state.shape),
          (scale * jnp.swapaxes(out, 1, 2)).reshape(shape).astype(dtype))


def _step(state, x):
  """Returns a state [N, E, X] after a token, and its output [E, X]."""
  after = state
  if x.log_decay is not None:
    after = jnp.exp(x.log_decay)[:, None] * state
  after += x.b[:, None] * _read(x.a, state)[None] + x.k[:, None] * x.v[None]
  return after, _read(x.q, after)


def _read(row, state):
  return (row[:, None] * state).sum(0)
