"""Sparse attention patterns as data: the keys that each query sees.

`lra.nn.block_sparse` computes attention under a `Pattern`.
"""

import dataclasses

import numpy as np

from lra.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class Pattern:
  """The pairs (query i, key j) with attention: the union of these fields.

  Attributes:
    block: positions in a block of the window and of `random_blocks`.
    offsets: the window, as blocks relative to the query's own: (0,) is the own
      block, (-1, 0, 1) adds its neighbours, () is none.
    radius: if given, the window keeps only |i - j| <= radius * dilation.
    causal: whether the window keeps only j <= i.
    dilation: distance between neighbours in the window; a block then consists
      of positions equal modulo `dilation`.
    global_keys: number of first positions that are seen by all queries.
    global_queries: number of first positions that see all keys.
    summary: (period, width): all queries see the last `width` positions of
      every `period`.
    random_blocks: nested tuples [H][N][R]: R further key blocks for head h and
      query block n, outside the window; -1 for none. With one entry instead of
      H, all heads share it.
  """
  block: int = 64
  offsets: tuple[int, ...] = (0,)
  radius: int | None = None
  causal: bool = False
  dilation: int = 1
  global_keys: int = 0
  global_queries: int = 0
  summary: tuple[int, int] | None = None
  random_blocks: tuple[tuple[tuple[int, ...], ...], ...] = ()

  def __post_init__(self):
    if min(self.block, self.dilation, *(self.summary or ())) < 1:
      raise UserError('Blocks, dilations, strides and summaries of an '
                      'attention pattern must be 1 or more.')
    if not (self.offsets or self.global_keys or self.summary):
      raise UserError('An attention pattern needs a window, global keys or '
                      'summaries.')

  def shared_keys(self, length: int) -> np.ndarray:
    """Returns the keys that all queries see, bool [L]."""
    j = np.arange(length)
    shared = j < self.global_keys
    if self.summary:
      period, width = self.summary
      shared |= j % period >= period - width
    return shared

  def num_keys(self, length: int) -> int:
    """Returns the number of keys computed per query, masked ones included."""
    blocks = len(self.fitting_offsets(length))
    if self.random_blocks:
      blocks += len(self.random_blocks[0][0])
    return blocks * self.block + int(self.shared_keys(length).sum())

  def kept(self, length: int) -> int:
    """Returns the number of keys kept at once, when tokens are read in order.

    A query is answered once its last key is read, and a key is kept until all
    its queries are answered. Global queries sum over keys and keep none.
    """
    if self.random_blocks:
      return length
    window = 0
    if self.offsets:
      near = (max(self.offsets) - min(self.offsets) + 1) * self.block
      if self.radius is not None:
        near = (2 - self.causal) * self.radius + 1
      # From `length - dilation` on, some queries need no further key.
      window = min((near - 1) * self.dilation,
                   max(length - self.dilation, 0)) + 1
    return min(length, window + int(self.shared_keys(length).sum()))

  def fitting_offsets(self, length: int) -> tuple[int, ...]:
    """Returns the offsets that some query block of a sequence can use."""
    blocks = -(-length // (self.block * self.dilation))
    return tuple(o for o in self.offsets if abs(o) < blocks)


def sliding_window(radius: int, *, causal: bool = False, **others) -> Pattern:
  """Returns the pattern |i - j| <= radius * dilation."""
  # Blocks of half the radius compute 5/4 of the window's keys and copy each key
  # five times. Smaller blocks compute fewer keys, but copy more. A block has at
  # least 16 positions, because smaller matmuls are slow.
  block = max(16, -(-radius // 2))
  reach = -(-radius // block)
  last = 0 if causal else reach
  return Pattern(block=block, offsets=tuple(range(-reach, last + 1)),
                 radius=radius, causal=causal, **others)


def random_blocks(num_blocks: int, num_random: int, *, reach: int,
                  num_global: int, heads: int, seed: tuple[int, ...]):
  """Draws `Pattern.random_blocks` outside the window and the global blocks.

  R blocks are drawn from those that are free, if there are so many. `reach`
  blocks of the window are on either side of the query's own.
  """
  if not num_random:
    return ()
  rng = np.random.default_rng(seed)

  def row(n):
    free = [m for m in range(num_global, num_blocks) if abs(m - n) > reach]
    drawn = rng.permutation(free)[:num_random]
    return tuple(int(m) for m in drawn) + (-1,) * (num_random - len(drawn))

  return tuple(
      tuple(row(n) for n in range(num_blocks)) for _ in range(heads))


def first_blocks(blocks, num_blocks: int):
  """Returns `Pattern.random_blocks` cut to the first N blocks of a sequence."""
  return tuple(tuple(
      tuple(m if m < num_blocks else -1 for m in row)
      for row in rows[:num_blocks]) for rows in blocks)
