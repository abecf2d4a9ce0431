"""Building blocks of kernels for Hopper GPUs: tiles, matmuls, a ring buffer.

A tile is 64 x 64 bf16 values in shared memory, in the 128-byte swizzle that TMA
writes and the tensor cores read. A chunk is 64 rows of one head: Dh / 64 tiles
side by side. A block (CTA) runs Dh / 64 warpgroups. Warpgroup w computes
columns 64 w to 64 w + 63 of every result, so every matmul is a sum of matmuls
of 64 x 64 tiles. TMA fills rows beyond the end of the sequence with zeros and
drops writes to them, so L may be any number.

The GPU interpreter runs the same bodies with `Tools.simulate`, which avoids
features that it lacks: layouts, overlapping views and tensor-core operands in
registers.
"""

import dataclasses
import functools
import inspect
import types

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
  return lax.broadcast_in_dim(x_R, (TILE, TILE), (0,))


def col(x_C):
  return lax.broadcast_in_dim(x_C, (TILE, TILE), (1,))


def keep(valid_R, x):
  return x if valid_R is None else jnp.where(row(valid_R) > 0, x, 0.0)


def turned(ref):
  return ref.transpose((1, 0))


def at(n):
  return pl.ds(n * TILE, TILE)


def numbers(count):
  """Returns 0 to count - 1 as traced indices of tiles.

  A Python number as index of a matmul operand would become a constant of
  `pl.run_state` in `Tools.add`, which Mosaic cannot lower.
  """
  zero = lax.axis_index('wg') * 0
  return [zero + t for t in range(count)]


def place(warpgroups, heads):
  """Returns (batch row, head, part of L, warpgroup in the block)."""
  bh = lax.axis_index('bh')
  b, h = lax.div(bh, jnp.int32(heads)), lax.rem(bh, jnp.int32(heads))
  alone = warpgroups == 1
  w = numbers(1)[0] if alone else lax.axis_index('wg')
  return b, h, lax.axis_index('part'), w


def tile(t):
  return pl.ds(t * TILE, TILE)


@dataclasses.dataclass(frozen=True)
class Tools:
  """Operations of one warpgroup; `simulate` for the GPU interpreter."""
  simulate: bool

  def tiles(self, *lead):
    tiling = plgpu.TilingTransform((8, TILE))
    return plgpu.SMEM((*lead, TILE, TILE), jnp.bfloat16,
                      transforms=(tiling, _SWIZZLE))

  def moved(self, *lead):
    """Returns scratch for tiles that TMA moves to or from a sequence.

    TMA cannot cut an L that is no multiple of 8 into tiles of 8 rows. It can
    cut any L into 64 rows of one 128-byte line, which are the same bytes. So
    one buffer has two views, see `views`.
    """
    if self.simulate:
      return self.tiles(*lead)
    lines = plgpu.SMEM((*lead, TILE, TILE), jnp.bfloat16,
                       transforms=(plgpu.TilingTransform((TILE,)), _SWIZZLE))
    return plgpu.RefUnion(self.tiles(*lead), lines)

  def factors(self, count, copies):
    """Returns scratch for vectors [64] with which a matmul sums over rows.

    Unlike a sum in registers, such a matmul needs no shared scratch. Its right
    operand is a transposed tile [8 copies, 64]; each of `count` warpgroups has
    its own. A swizzle leaves every eighth row contiguous, so a vector can be
    stored there unswizzled, through the second of the two `views`.
    """
    if self.simulate:
      return plgpu.SMEM((count, 8 * copies, TILE), jnp.bfloat16)
    tiling = plgpu.TilingTransform((8, TILE))
    shape = (count, 8 * copies, TILE)
    return plgpu.RefUnion(
        plgpu.SMEM(shape, jnp.bfloat16, transforms=(tiling, _SWIZZLE)),
        plgpu.SMEM(shape, jnp.bfloat16))

  def views(self, ref):
    """Returns two views of `moved` or `factors` scratch: tiles and lines."""
    return (ref, ref) if self.simulate else ref

  def as_layout(self, x, layout):
    return x if self.simulate else plgpu.layout_cast(x, layout)

  def load(self, ref, layout=MATRIX):
    return self.as_layout(ref[...], layout)

  def load_global(self, ref, index, layout=MATRIX):
    if self.simulate:
      return ref[index]
    if _OLD_LOAD:
      return plgpu.load(ref, index, layout=layout, optimized=False)
    return plgpu.load(ref.at[index], layout=layout, optimized=False)

  def zeros(self, shape=(TILE, TILE), layout=MATRIX):
    return self.as_layout(jnp.zeros(shape, jnp.float32), layout)

  def index(self, axis=None):
    if axis is None:
      return self._iota((TILE,), 0, ROWS)
    return self._iota((TILE, TILE), axis, MATRIX)

  def columns(self):
    return self._iota((TILE,), 0, COLS)

  def _iota(self, shape, axis, layout):
    return self.as_layout(lax.broadcasted_iota(jnp.int32, shape, axis), layout)

  def valid(self, mask_ref, n, length):
    """Returns float32 [64], 0 for invalid rows of chunk n; None: all valid."""
    if mask_ref is not None:
      return self.load(mask_ref, ROWS)
    if length % TILE == 0:
      return None
    return jnp.where(self.index() < length - n * TILE, 1.0, 0.0)

  def products(self, *groups):
    """Returns for each group of pairs (a, b) the float32 sum of all a @ b."""
    def run(*accs):
      for acc, terms in zip(accs, groups, strict=True):
        for a, b in terms:
          if self.simulate:
            # The interpreter's race detector does not see wgmma's reads.
            _ = a[...], b[...]
          plgpu.wgmma(acc, a, b)
      return tuple(acc[...] for acc in accs)

    accs = (plgpu.ACC((TILE, g[0][1].shape[1]), jnp.float32) for g in groups)
    return pl.run_scoped(run, *accs)

  def product(self, *terms):
    return self.products(terms)[0]

  def add(self, *groups):
    """Adds to each acc the products of its pairs, in place if not simulated.

    A group is (acc, [(a, b), ...]); every a @ b is added. Returns all acc.
    """
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
    """Returns x in registers, in simulation in `spare`, as a left operand."""
    x = x.astype(jnp.bfloat16)
    if not self.simulate:
      return x
    self.publish((spare, x))
    return spare

  def publish(self, *stores):
    """Writes (ref, value) pairs that other threads, tensor cores or TMA read.

    The first barrier is for readers of the old values, the second for the new.
    """
    plgpu.commit_smem()
    for ref, value in stores:
      ref[...] = value.astype(ref.dtype)
    plgpu.commit_smem()


def meet(barrier, warpgroups):
  if warpgroups > 1:
    plgpu.barrier_arrive(barrier)
    plgpu.barrier_wait(barrier)


def copy_chunk(source, b, n, h, target, barrier, warpgroups):
  """Starts to copy chunk n of [B, L, H, Dh]; each tile arrives at `barrier`."""
  for t in range(warpgroups):
    plgpu.copy_gmem_to_smem(source.at[b, at(n), h, tile(t)], target.at[t],
                            barrier)


@dataclasses.dataclass(frozen=True)
class Ring:
  """Ring buffer of chunks that are being loaded; step t uses slot t % stages.

  `fetch` is a function of (step, slot) that starts the copies. Every warpgroup
  arrives at the slot's barrier `free` when it has finished.
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
    """If step >= 0, frees the slot of `step` and fetches the next chunk."""
    @pl.when(step >= 0)
    def _():
      slot = self.slot(step)
      plgpu.barrier_arrive(self.free.at[slot])
      later = step + self.stages

      @pl.when((lax.axis_index('wg') == 0) & (later < self.steps))
      def _():
        plgpu.barrier_wait(self.free.at[slot])
        self.fetch(later, slot)


def ring_scratch(tools, names, warpgroups, stages, masked):
  """Returns scratch of a `Walk`: slots for tensors, barriers."""
  slots = functools.partial(plgpu.Barrier, num_barriers=stages)
  return {**{name: tools.moved(stages, warpgroups) for name in names},
          'mask': plgpu.SMEM((stages, TILE), jnp.float32) if masked else None,
          'full': slots(num_arrivals=len(names) * warpgroups + masked),
          'free': slots(num_arrivals=warpgroups),
          'met': plgpu.Barrier(num_arrivals=warpgroups)}


class Walk:
  """A block's loop over the chunks of one part of one (b, h).

  It loads chunks of the inputs `names`, and the mask, with `ring_scratch`.
  """

  def __init__(self, tools, ins, scratch, names, length, per_part,
               reverse=False):
    *_, heads, width = getattr(ins, names[0]).shape
    self.warpgroups = width // TILE
    self.b, self.h, self.part, self.w = place(self.warpgroups, heads)
    self.tools, self.ins, self.scratch, self.names = tools, ins, scratch, names
    self.length, self.reverse = length, reverse
    self.numbers = numbers(self.warpgroups)
    self.first, self.steps = self.part * per_part, per_part
    count = -(-length // TILE)
    if count % per_part:
      self.steps = jnp.minimum(per_part, count - self.first)
    self.views = {n: tools.views(getattr(scratch, n)) for n in names}
    self.ring = Ring(scratch.free.shape[0], self.steps, self._fetch,
                     scratch.free)
    self.ring.start()

  def _number(self, step):
    return self.first + (self.steps - 1 - step if self.reverse else step)

  def _fetch(self, step, slot):
    n, full = self._number(step), self.scratch.full.at[slot]
    for name in self.names:
      copy_chunk(getattr(self.ins, name), self.b, n, self.h,
                 self.views[name][1].at[slot], full, self.warpgroups)
    if self.ins.mask is not None:
      plgpu.copy_gmem_to_smem(self.ins.mask.at[self.b, at(n)],
                              self.scratch.mask.at[slot], full)

  def run(self, step, carry=None):
    """Runs step(chunk, carry) -> carry on every chunk.

    A chunk has its number n, its place t in the walk, the tiles of each tensor
    by name, and the function `valid` for `Tools.valid`.
    """
    def body(t, carry):
      slot, n = self.ring.slot(t), self._number(t)
      plgpu.barrier_wait(self.scratch.full.at[slot])
      self.ring.release(t - 1)
      mask = None if self.ins.mask is None else self.scratch.mask.at[slot]
      tiles = {name: view[0].at[slot] for name, view in self.views.items()}
      return step(types.SimpleNamespace(
          n=n, t=t, valid=lambda: self.tools.valid(mask, n, self.length),
          **tiles), carry)

    return lax.fori_loop(0, self.steps, body, carry)

  def meet(self):
    meet(self.scratch.met, self.warpgroups)


class Columns:
  """Column sums of `count` tensors for warpgroup w; none if `count` is 0.

  The gradient of a bias is the sum of the gradients of q, k and v over tokens:
  a matmul of their bfloat16 tiles with ones, before they are stored. `ones` is
  scratch memory `Tools.factors(n, 1)`, None if `count` is 0. With n = 1 the
  first warpgroup fills it for all, and the block must call `meet` before a sum.
  """

  def __init__(self, tools, ones, w, count):
    self.tools, self.w, self.count = tools, w, count
    if not count:
      return
    self.tiles, lines = tools.views(ones)
    copies = lines.shape[0]
    self.own = w if copies > 1 else numbers(1)[0]
    lines = lines.at[self.own]

    @pl.when((w == 0) | (copies > 1))
    def _():
      tools.publish((lines, jnp.ones(lines.shape, jnp.bfloat16)))

  def zeros(self):
    """Returns initial sums: float32 [64, 8], whose 8 columns stay equal."""
    return (self.tools.zeros((TILE, 8)),) * self.count

  def add(self, sums, *tiles, zero=0):
    """Adds published tiles to the sums.

    `zero` is 0. If the compiler does not know this, it computes the address of
    the ones in the loop and spends no registers on it.
    """
    if not self.count:
      return sums
    ones = turned(self.tiles.at[self.own + zero])
    return self.tools.add(*((x, [(turned(tile), ones)])
                            for x, tile in zip(sums, tiles, strict=True)))

  def store(self, sums, targets, where):
    if not self.count:
      return
    for x, target in zip(sums, targets, strict=True):
      target[(*where, tile(self.w))] = jnp.sum(x, axis=1) / 8


def column_sums(inputs, parts, description):
  """Describes outputs that sum dq, dk and dv over each part: [B, H, parts, Dh].
  """
  if inputs.bias is None:
    return (None,) * 3
  b, _, h, d = inputs.shape
  shape = b, h, parts, d
  return tuple(description(shape, jnp.float32) for _ in range(3))


def bias_gradient(sums):
  """Returns a bias's gradient [3, H, Dh] from its `column_sums`, or None."""
  if sums[0] is None:
    return None
  return jnp.stack([x.sum((0, 2)) for x in sums])
