"""The scan in plain XLA: a loop over C tokens, for all chunks at once.

L is cut into N chunks of C tokens. A first loop of C steps finds what every
chunk does to a state, s -> A s + T; a scan over chunks joins these; a second
loop computes h from the state before each chunk. Each loop reads x and a once,
and only the second writes. `jax.lax.associative_scan` over tokens would read
and write arrays of half, a quarter, ... of the tokens, twice.

On a CPU a single chunk of L tokens, which needs the second loop only, is
fastest: its state stays in the cache.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import axes, dispatch
from lra.kernels.scan import numbers, passes
from lra.kernels.xla import states_before

CHUNK = 64


def scan(x, a, state, *, reverse, late, interpret):
  del interpret
  batch, length, width = x.shape
  size = length if dispatch.platform() == 'cpu' else min(CHUNK, length)
  wide = numbers.wide(x.dtype)
  walk = _Walk(x, a, size, reverse, late, wide)
  if state is None:
    state = axes.zeros((batch, width), wide, x)
  before = state[:, None]
  if walk.count > 1:
    before = _before(walk, state)

  def body(i, carry):
    s, out = carry
    h, s, _ = walk.step(i, s)
    h = h[:, :, None].astype(out.dtype)
    return s, lax.dynamic_update_slice_in_dim(out, h, walk.place(i), 2)

  out = axes.zeros(walk.x.shape, x.dtype, x)
  after, out = lax.fori_loop(0, size, body, (before, out))
  out = out.reshape(batch, -1, width)
  out = out[:, walk.extra:] if reverse else out[:, :length]
  return out, after[:, 0 if reverse else -1]


forward, backward = passes.of(scan)


def _before(walk, state):
  ones = jnp.ones_like(walk.x[:, :, 0], walk.dtype)

  def body(i, carry):
    total, factor = carry
    _, total, a = walk.step(i, total)
    return total, a * factor

  total, factor = lax.fori_loop(0, walk.size, body, (0 * ones, ones))
  return states_before(factor, total, state, walk.reverse)


@dataclasses.dataclass
class _Walk:
  """Cuts x and a into N chunks of C rows and computes one row of each chunk.

  Rows after the end of the scan fill the last chunk with x = 0 and a = 1.
  Except for a constant a, x and a become [B, N, C, E].
  """
  x: jax.Array
  a: jax.Array
  size: int
  reverse: bool
  late: bool
  dtype: jnp.dtype

  def __post_init__(self):
    self.length = self.x.shape[1]
    self.count = -(-self.length // self.size)
    self.extra = self.count * self.size - self.length
    self.x = self._chunks(self.x, 0)
    self.a = self.a if self.a.ndim == 1 else self._chunks(self.a, 1)

  def _chunks(self, y, filling):
    if self.extra:
      fill = (self.extra, 0) if self.reverse else (0, self.extra)
      y = jnp.pad(y, ((0, 0), fill, (0, 0)), constant_values=filling)
    return y.reshape(len(y), self.count, self.size, -1)

  def place(self, i):
    return self.size - 1 - i if self.reverse else i

  def step(self, i, s):
    """Returns h, the state after it and a at step i, each [B, N, E]."""
    x, a = self._at(self.x, i), self._factor(i)
    h = s + x if self.late else a * s + x
    return h, a * h if self.late else h, a

  def _at(self, y, i):
    row = lax.dynamic_index_in_dim(y, self.place(i), 2, keepdims=False)
    return row.astype(self.dtype)

  def _factor(self, i):
    if self.a.ndim > 1:
      return self._at(self.a, i)
    a = self.a.astype(self.dtype)
    if not self.extra:
      return a[None, None]
    row_N = jnp.arange(self.count) * self.size + self.place(i)
    there_N = row_N >= self.extra if self.reverse else row_N < self.length
    return jnp.where(there_N[None, :, None], a[None, None], 1)
