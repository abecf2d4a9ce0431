"""Several sequences in one row, in chunks that stay within one sequence.

A row of L tokens holds up to N segments, numbered by `segment_ids`. Each is cut
into chunks of C tokens from its first token on, so a row has at most L / C + N
chunks. This many are always computed. A chunk is gathered and may start at any
row; its rows after its segment are zeros.

Shapes: B rows, L tokens, N segments, P chunks, C tokens of a chunk.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

CHUNK = 64


@dataclasses.dataclass(frozen=True)
class Chunks:
  """The chunks of every row.

  Attributes:
    segment_BxP, rows_BxP: segment of each chunk, N if unused; number of tokens.
    first_BxP, last_BxP: whether a chunk is the first or last of its segment.
    index_BxPxC, kept_BxPxC: token at each place of a chunk; whether there is
      one that the mask keeps.
    place_BxL: place of a token: chunk times C plus row in the chunk.
    token_BxL: whether a token is in a segment and kept by the mask.
    empty_BxN: whether a segment has no token.
  """
  segment_BxP: jax.Array
  rows_BxP: jax.Array
  first_BxP: jax.Array
  last_BxP: jax.Array
  index_BxPxC: jax.Array
  kept_BxPxC: jax.Array
  place_BxL: jax.Array
  token_BxL: jax.Array
  empty_BxN: jax.Array

  def split(self, x_BxLxHxD):
    """Gathers chunks [B, P, C, H, D], 0 at places without a kept token."""
    b, p, c = self.index_BxPxC.shape
    index = self.index_BxPxC.reshape(b, p * c, 1, 1)
    x = jnp.take_along_axis(x_BxLxHxD, index, axis=1, mode='clip')
    return self.keep(x.reshape(b, p, c, *x_BxLxHxD.shape[2:]))

  def keep(self, x_BxPxCxHxD):
    return jnp.where(self.kept_BxPxC[..., None, None], x_BxPxCxHxD, 0)

  def join(self, x_BxPxCxHxD):
    """Inverts `split`: [B, L, H, D], 0 at tokens that are not kept."""
    b, _, _, h, d = x_BxPxCxHxD.shape
    index = self.place_BxL[..., None, None]
    x = jnp.take_along_axis(x_BxPxCxHxD.reshape(b, -1, h, d), index, axis=1,
                            mode='clip')
    return jnp.where(self.token_BxL[..., None, None], x, 0)

  def of_segments(self, x):
    """Sums over the chunks of each segment: [B, P, ...] -> [B, N, ...]."""
    count = self.empty_BxN.shape[1]
    total = functools.partial(jax.ops.segment_sum, num_segments=count + 1)
    return jax.vmap(total)(x, self.segment_BxP)[:, :count]

  def of_chunks(self, x):
    index = _wide(self.segment_BxP, x)
    return jnp.take_along_axis(x, index, axis=1, mode='clip')

  def chosen(self, which, x, other):
    """Applies jnp.where to bool [B, P] or [B, N] and arrays of more axes."""
    return jnp.where(_wide(which, x), x, other)


def _wide(x, like):
  return x.reshape(*x.shape, *(1,) * (like.ndim - x.ndim))


def chunks(segment_ids, num_segments, mask=None, chunk=CHUNK):
  """Returns the `Chunks` of int32 [B, L] ids, in chunks of C = `chunk`.

  Ids are 0 to num_segments - 1; tokens of one id must be adjacent. Other ids,
  such as -1, mark padding. Segments may be empty. A mask, bool [B, L] or None,
  removes tokens from all sums, but leaves them in their place.
  """
  row = functools.partial(_row, count=num_segments, chunk=chunk)
  found = Chunks(**jax.vmap(row)(segment_ids))
  if mask is None:
    return found
  flat = found.index_BxPxC.reshape(len(mask), -1)
  kept = jnp.take_along_axis(mask, flat, axis=1)
  return dataclasses.replace(
      found, kept_BxPxC=found.kept_BxPxC & kept.reshape(found.kept_BxPxC.shape),
      token_BxL=found.token_BxL & mask)


def _row(ids, *, count, chunk):
  length = len(ids)
  token = (ids >= 0) & (ids < count)
  ids = jnp.where(token, ids, count)
  at_L, c_C = jnp.arange(length), jnp.arange(chunk)
  p_P = jnp.arange(-(-length // chunk) + count)
  size_N, start_N = (reduce(x, ids, count + 1)[:count] for reduce, x in (
                         (jax.ops.segment_sum, jnp.ones_like(ids)),
                         (jax.ops.segment_min, at_L)))
  chunks_N = -(-size_N // chunk)
  ends_N = jnp.cumsum(chunks_N)
  before_N = ends_N - chunks_N
  segment_P = jnp.searchsorted(ends_N, p_P, side='right')
  own_P = jnp.minimum(segment_P, count - 1)
  number_P = p_P - before_N[own_P]  # number of the chunk within its segment
  rows_P = jnp.clip(size_N[own_P] - number_P * chunk, 0, chunk)
  rows_P = jnp.where(segment_P < count, rows_P, 0)
  index_PxC = (start_N[own_P] + number_P * chunk)[:, None] + c_C
  own_L = jnp.minimum(ids, count - 1)
  place_L = before_N[own_L] * chunk + at_L - start_N[own_L]
  return {'segment_BxP': segment_P, 'rows_BxP': rows_P,
          'first_BxP': number_P == 0,
          'last_BxP': (rows_P > 0) & (number_P == chunks_N[own_P] - 1),
          'index_BxPxC': jnp.clip(index_PxC, 0, length - 1),
          'kept_BxPxC': c_C < rows_P[:, None],
          'place_BxL': jnp.where(token, place_L, 0), 'token_BxL': token,
          'empty_BxN': size_N == 0}
