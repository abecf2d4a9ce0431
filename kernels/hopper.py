"""What the bodies of the kernels for Hopper share: tiles, products, the ring.

A tile is 64 x 64 bf16 values in shared memory: the 128-byte swizzle that TMA
writes and the tensor cores read. A chunk is 64 rows of one head, Dh / 64
tiles side by side. A block (CTA) runs Dh / 64 warpgroups, and warpgroup w
makes columns 64 w to 64 w + 63 of every result, so that each product is a sum
of 64 x 64 x 64 ones at every head width.

TMA fills rows behind the end of the sequence with zeros and drops what is
written there, so L need not be a multiple of anything.

The GPU interpreter runs the same bodies, except that it knows no layouts, no
overlapping views and no tensor-core operand in registers: `Tools.simulate`.
`kernels.hopper_call` runs a body.
"""

import dataclasses
import inspect

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

TILE = 64
MATRIX = plgpu.Layout.WGMMA
ROWS = MATRIX.reduce(1)  # [64], one number per row of a tile
COLS = MATRIX.reduce(0)  # [64], one number per column of a tile

_SWIZZLE = plgpu.SwizzleTransform(128)
_OLD_LOAD = 'idx' in inspect.signature(plgpu.load).parameters  # jax 0.10


def row(x_R):
  """[64] -> [64, 64], one number per row."""
  return lax.broadcast_in_dim(x_R, (TILE, TILE), (0,))


def col(x_C):
  """[64] -> [64, 64], one number per column."""
  return lax.broadcast_in_dim(x_C, (TILE, TILE), (1,))


def keep(valid_R, x):
  """x, with 0 in the rows that do not count (they may hold NaN)."""
  return x if valid_R is None else jnp.where(row(valid_R) > 0, x, 0.0)


def turned(ref):
  """The transposed view of a tile."""
  return ref.transpose((1, 0))


def at(n):
  """The rows of chunk n."""
  return pl.ds(n * TILE, TILE)


def numbers(count):
  """0 to count - 1 as traced values: indices of tiles.

  A Python number in the index of a product's operand would become a constant
  of `pl.run_state` in `Tools.add`, which Mosaic cannot lower.
  """
  zero = lax.axis_index('wg') * 0
  return [zero + t for t in range(count)]


def place(warpgroups, heads):
  """(b, h, part) of this block, and w of this warpgroup in it.

  The last axis of a grid runs fastest, and h fastest in it: the heads of a
  row lie side by side in memory, and are read at about the same time.
  """
  bh = lax.axis_index('bh')
  b, h = lax.div(bh, jnp.int32(heads)), lax.rem(bh, jnp.int32(heads))
  alone = warpgroups == 1
  w = numbers(1)[0] if alone else lax.axis_index('wg')
  return b, h, lax.axis_index('part'), w


def tile(t):
  """The columns of tile t."""
  return pl.ds(t * TILE, TILE)


@dataclasses.dataclass(frozen=True)
class Tools:
  """Operations on tiles by one warpgroup; `simulate` for the interpreter."""

  simulate: bool

  def tiles(self, *lead):
    """Scratch: tiles [*lead, 64, 64]."""
    tiling = plgpu.TilingTransform((8, TILE))
    return plgpu.SMEM(
      (*lead, TILE, TILE), jnp.bfloat16, transforms=(tiling, _SWIZZLE)
    )

  def moved(self, *lead):
    """Scratch: tiles that TMA moves to or from rows of a sequence.

    TMA will not cut an L that is no multiple of 8 into tiles of 8 rows. The
    same bytes are also 64 rows of one 128-byte line, which any L can be cut
    into: two views of one buffer, see `views`.
    """
    if self.simulate:
      return self.tiles(*lead)
    lines = plgpu.SMEM(
      (*lead, TILE, TILE),
      jnp.bfloat16,
      transforms=(plgpu.TilingTransform((TILE,)), _SWIZZLE),
    )
    return plgpu.RefUnion(self.tiles(*lead), lines)

  def factors(self, count, copies):
    """Scratch: factors [64] of rows, for products that sum over rows.

    Such a product needs no scratch in common, as a sum in registers does. Its
    right operand is the transposed tile [8 copies, 64], one for each of
    `count` warpgroups. A swizzle leaves every eighth row in one piece, so a
    vector is stored there as it is, in the second of the two `views`.
    """
    if self.simulate:
      return plgpu.SMEM((count, 8 * copies, TILE), jnp.bfloat16)
    tiling = plgpu.TilingTransform((8, TILE))
    shape = (count, 8 * copies, TILE)
    return plgpu.RefUnion(
      plgpu.SMEM(shape, jnp.bfloat16, transforms=(tiling, _SWIZZLE)),
      plgpu.SMEM(shape, jnp.bfloat16),
    )

  def views(self, ref):
    """(as tiles, as lines) of `moved` or `factors` scratch."""
    return (ref, ref) if self.simulate else ref

  def as_layout(self, x, layout):
    return x if self.simulate else plgpu.layout_cast(x, layout)

  def load(self, ref, layout=MATRIX):
    """A tile, or [64] numbers, from shared memory."""
    return self.as_layout(ref[...], layout)

  def load_global(self, ref, index, layout=MATRIX):
    """A float32 tile, or [64] numbers, from global memory."""
    if self.simulate:
      return ref[index]
    if _OLD_LOAD:
      return plgpu.load(ref, index, layout=layout, optimized=False)
    return plgpu.load(ref.at[index], layout=layout, optimized=False)

  def zeros(self, shape=(TILE, TILE), layout=MATRIX):
    return self.as_layout(jnp.zeros(shape, jnp.float32), layout)

  def index(self, axis=None):
    """int32 row number [64], or the row or column number [64, 64]."""
    if axis is None:
      return self._iota((TILE,), 0, ROWS)
    return self._iota((TILE, TILE), axis, MATRIX)

  def columns(self):
    """int32 column number [64]."""
    return self._iota((TILE,), 0, COLS)

  def _iota(self, shape, axis, layout):
    return self.as_layout(lax.broadcasted_iota(jnp.int32, shape, axis), layout)

  def valid(self, mask_ref, n, length):
    """[64] float32, 0 for rows of chunk n that do not count; None: all do."""
    if mask_ref is not None:
      return self.load(mask_ref, ROWS)
    if length % TILE == 0:
      return None
    return jnp.where(self.index() < length - n * TILE, 1.0, 0.0)

  def products(self, *groups):
    """One sum of a @ b per group of (a, b), float32 tiles."""

    def run(*accs):
      for acc, terms in zip(accs, groups, strict=True):
        for a, b in terms:
          if self.simulate:
            # Its race detector does not see what wgmma reads.
            _ = a[...], b[...]
          plgpu.wgmma(acc, a, b)
      return tuple(acc[...] for acc in accs)

    accs = (plgpu.ACC((TILE, g[0][1].shape[1]), jnp.float32) for g in groups)
    return pl.run_scoped(run, *accs)

  def product(self, *terms):
    return self.products(terms)[0]

  def add(self, *groups):
    """acc + the sum of a @ b, in place, per group (acc, terms)."""
    if self.simulate:
      sums = self.products(*(terms for _, terms in groups))
      return tuple(g[0] + s for g, s in zip(groups, sums, strict=True))

    def run(accs):
      for acc, (_, terms) in zip(accs, groups, strict=True):
        for a, b in terms:
          plgpu.wgmma(acc, a, b)

    accs = tuple(plgpu.ACC.init(acc) for acc, _ in groups)
    return pl.run_state(run)(accs)

  def operand(self, x, spare):
    """A tile of registers as left operand; through `spare` in simulation."""
    x = x.astype(jnp.bfloat16)
    if not self.simulate:
      return x
    self.publish((spare, x))
    return spare

  def publish(self, *stores):
    """Writes (ref, value) pairs that other threads and units will read.

    The first barrier waits until the warpgroup has read what is overwritten,
    the second makes the values visible to the tensor cores and to TMA.
    """
    plgpu.commit_smem()
    for ref, value in stores:
      ref[...] = value.astype(ref.dtype)
    plgpu.commit_smem()


def meet(barrier, warpgroups):
  """All warpgroups of the block wait for each other."""
  if warpgroups > 1:
    plgpu.barrier_arrive(barrier)
    plgpu.barrier_wait(barrier)


def copy_chunk(source, b, n, h, target, barrier, warpgroups):
  """Starts to copy chunk n of [B, L, H, Dh]; one arrival per tile."""
  for t in range(warpgroups):
    plgpu.copy_gmem_to_smem(
      source.at[b, at(n), h, tile(t)], target.at[t], barrier
    )


@dataclasses.dataclass(frozen=True)
class Ring:
  """Chunks on their way: step t sits in slot t % stages.

  Attributes:
    stages: slots.
    steps: steps in all, int or traced.
    fetch: called with (step, slot): starts the copies.
    free: barrier per slot, every warpgroup arrives when done with it.
  """

  stages: int
  steps: object
  fetch: object
  free: object

  def start(self):
    @pl.when(lax.axis_index('wg') == 0)
    def _():
      for t in range(self.stages):
        pl.when(t < self.steps)(lambda t=t: self.fetch(jnp.int32(t), t))

  def slot(self, step):
    return lax.rem(step, jnp.int32(self.stages))

  def release(self, step):
    """Done with the chunk of `step` (ignored if < 0): fetch another."""

    @pl.when(step >= 0)
    def _():
      slot = self.slot(step)
      plgpu.barrier_arrive(self.free.at[slot])
      later = step + self.stages

      @pl.when((lax.axis_index('wg') == 0) & (later < self.steps))
      def _():
        plgpu.barrier_wait(self.free.at[slot])
        self.fetch(later, slot)
