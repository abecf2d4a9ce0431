"""Makes a scan start anew at each of several sequences in a row.

The factor of the first token of a sequence is set to 0, and its input gets the
initial state of the sequence instead. So every kernel supports segments, but a
factor is needed for each token, even if `a` is constant.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels.scan import numbers


class Rows(NamedTuple):
  """The first and last token of each segment, in the order of the scan.

  `segment_BxL` is the segment of each token, clipped to 0 ... N - 1.
  """
  segment_BxL: jax.Array
  first_BxL: jax.Array
  last_BxN: jax.Array
  empty_BxN: jax.Array


def rows(segment_ids, num_segments, reverse):
  length = segment_ids.shape[1]
  place = jnp.arange(length)[None, None]
  own_BxNxL = segment_ids[:, None] == jnp.arange(num_segments)[None, :, None]
  if reverse:
    last_BxN = jnp.min(jnp.where(own_BxNxL, place, length - 1), axis=2)
    before = jnp.pad(segment_ids, ((0, 0), (0, 1)), constant_values=-2)[:, 1:]
  else:
    last_BxN = jnp.max(jnp.where(own_BxNxL, place, 0), axis=2)
    before = jnp.pad(segment_ids, ((0, 0), (1, 0)), constant_values=-2)[:, :-1]
  return Rows(jnp.clip(segment_ids, 0, num_segments - 1), segment_ids != before,
              last_BxN, ~own_BxNxL.any(axis=2))


def cut(rows, x, a, initial_state):
  """Changes x and a so that one scan of a row equals scans of its segments."""
  first = rows.first_BxL[..., None]
  x = x.astype(numbers.wide(x.dtype))
  a = a if a.ndim == 3 else a[None, None]
  if initial_state is not None:
    start_BxLxE = jnp.take_along_axis(
        initial_state, rows.segment_BxL[..., None], axis=1)
    x = jnp.where(first, x + a.astype(x.dtype) * start_BxLxE, x)
  return x, jnp.where(first, 0, a).astype(a.dtype)


def states(rows, h, initial_state):
  """Returns the last states [B, N, E]; an empty segment keeps its first one."""
  state = jnp.take_along_axis(h, rows.last_BxN[..., None], axis=1)
  start = 0 if initial_state is None else initial_state
  return jnp.where(rows.empty_BxN[..., None], start, state)
