"""Operations of the TPU kernels of lightning attention on a block of rows."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lra.kernels import chunks, tpu

NAMES = 'q', 'k', 'v'
GRADIENTS = 'dq', 'dk', 'dv'


@dataclasses.dataclass(frozen=True)
class Steps:
  """Static parameters of a call, and the walk over the chunks of a block.

  Attributes:
    tiles, options: `lra.kernels.tpu.Tiling`, `LightningOptions`.
    dtype: dtype of q, k and v.
    packed: whether one array holds q, k and v, and one array their gradients.
    part: number of the part of the sequence at which the grid starts.
  """
  tiles: tpu.Tiling
  options: object
  dtype: object
  packed: bool
  part: int = 0

  # The first axis of a grid, i, counts sequences, or parts of one sequence.

  def block(self, i, n):
    """Returns the block at step n, which may lie beyond the last."""
    if self.tiles.parts == 1:
      return n
    return (i + self.part) * self.tiles.steps + n

  def if_there(self, block):
    """Returns a decorator that runs a function only if `block` exists."""
    if self.tiles.parts == 1:
      return lambda function: function()
    return pl.when(block < self.tiles.blocks)

  def forth(self, i, g, n):
    """Returns the block (b, g, n) of a grid step; blocks go first to last."""
    block = jnp.minimum(self.block(i, n), self.tiles.blocks - 1)
    return (i if self.tiles.parts == 1 else 0), g, block

  def back(self, i, g, n):
    """Returns the block (b, g, n) of a grid step; blocks go last to first."""
    return self.forth(i, g, self.tiles.steps - 1 - n)

  @property
  def chunk(self):
    return min(tpu.STEP, self.tiles.rows)

  @property
  def count(self):
    """Returns the number of chunks in a block."""
    return self.tiles.rows // self.chunk

  @property
  def decay(self):
    """Returns the shape of the decays within a chunk, for a block's heads."""
    return self.tiles.heads, self.chunk, self.chunk

  def operands(self, inputs, where, names=NAMES):
    """Returns name -> (BlockSpec, array) of q, k, v for
    `lra.kernels.tpu.call`."""
    if self.packed:
      return {'q k v': (self.tiles.row(where), tpu.flat(inputs.arrays[0]))}
    arrays = dict(zip(NAMES, inputs.arrays, strict=True))
    return {n: (self.tiles.tile(where), tpu.flat(arrays[n])) for n in names}

  def results(self, where, like):
    """Returns name -> (BlockSpec, description) of the gradients."""
    t = self.tiles
    shape = t.batch, t.length, t.num_heads * t.width
    if self.packed:
      shape = *shape[:2], 3 * shape[2]
      return {'dq dk dv': (self.tiles.row(where), like(shape, self.dtype))}
    return {n: (t.tile(where), like(shape, self.dtype)) for n in GRADIENTS}

  def start(self, state_scr, state):
    """Sets the initial state: 0, or a block of `state`."""
    zeros = state is None
    state_scr[...] = jnp.zeros_like(state_scr) if zeros else state[0]

  def slopes(self, ins):
    """Returns the slopes of the heads of this block."""
    first = pl.program_id(1) * self.tiles.heads
    return [ins.slopes[0, first + h] for h in range(self.tiles.heads)]

  def fill_decay(self, slopes, decay_scr):
    """Writes scale * exp(-slope (i - j)) of every head, once per sequence."""
    shape = (self.chunk, self.chunk)
    i = lax.broadcasted_iota(jnp.int32, shape, 0)
    j = lax.broadcasted_iota(jnp.int32, shape, 1)
    for h, slope in enumerate(slopes):
      decay_scr[h] = chunks.within(slope, i, j) * self.options.scale

  def rows(self, ins, block, c):
    """Returns (rows, valid, length) of chunk c.

    `rows` is the slice of its rows in the block, `valid` the result of
    `tpu.valid` for them, `length` the number of rows that exist.
    """
    at = c * self.chunk
    start = block * self.tiles.rows + at
    rows = pl.ds(pl.multiple_of(at, self.chunk), self.chunk)
    mask_C = None if ins.mask is None else ins.mask[0, 0, rows]
    valid = tpu.valid(mask_C, start, self.chunk, self.tiles)
    length = self.chunk
    if self.tiles.ragged:
      length = jnp.clip(self.tiles.length - start, 0, self.chunk)
    return rows, valid, length

  def decays(self, slope, length):
    """Returns (scale * `chunks.from_start`, `chunks.to_end`, `chunks.over`).

    The first two are columns [C, 1], a number for each row. The third is one
    number.
    """
    i = lax.broadcasted_iota(jnp.int32, (self.chunk, 1), 0)
    start = chunks.from_start(slope, i) * self.options.scale
    return start, chunks.to_end(slope, i, length), chunks.over(slope, length)

  def load(self, ins, names, rows, valid, head):
    """Loads and activates values [C, Dh] of a head; 0 in invalid rows."""
    return [self._activated(self._raw(ins, n, rows, valid, head))
            for n in names]

  def store(self, ins, outs, bias, which, rows, valid, head, grad):
    """Stores the gradient of q, k or v (`which` 0, 1, 2) for rows of a head.

    `grad` is float32 [C, Dh], the gradient of the activated operand. It is
    multiplied by the activation's derivative and stored rounded. The gradient
    of the bias gets it unrounded.
    """
    if self.options.activation == 'silu':
      x = self._raw(ins, NAMES[which], rows, valid, head).astype(jnp.float32)
      s = jax.nn.sigmoid(x)
      grad = grad * (s * (1 + x * (1 - s)))
    grad = tpu.keep(valid, grad)
    ref, lane = self._lanes(outs, GRADIENTS, which, head)
    ref[0, rows, lane] = grad.astype(self.dtype)
    if bias is not None:
      d = self.tiles.width
      at = 0, slice(which, which + 1), slice(head * d, (head + 1) * d)
      bias[at] += jnp.sum(grad, axis=0, keepdims=True)

  def _raw(self, ins, name, rows, valid, head):
    ref, lane = self._lanes(ins, NAMES, NAMES.index(name), head)
    return tpu.keep(valid, ref[0, rows, lane])

  def _lanes(self, refs, names, which, head):
    """Returns the reference of an array, and the lanes of a head in it."""
    t = self.tiles
    first = which * t.num_heads * t.width if self.packed else 0
    lane = tpu.head_lanes(t, first)[head][1]
    return getattr(refs, names[which]), lane

  def _activated(self, x):
    if self.options.activation != 'silu':
      return x
    x = x.astype(jnp.float32)
    return (x * jax.nn.sigmoid(x)).astype(self.dtype)


def scalars(slopes):
  """Returns (BlockSpec, slopes [1, H]) for reading slopes as scalars.

  The slopes need two axes, so that vmap can add a third.
  """
  return pl.BlockSpec(memory_space=pltpu.SMEM), slopes[None]


def call(steps, kernel, ins, outs, *, grid, products, states=0):
  """Calls `lra.kernels.tpu.call` with scratch memory for decays and states.

  Args:
    steps, kernel: `Steps`; function of the references and `steps`.
    ins, outs: see `lra.kernels.tpu.call`.
    grid: (sequences or parts of one, groups of heads, steps).
    products: number of matmuls per chunk.
    states: number of states in scratch memory besides the running one.
  """
  t = steps.tiles
  state = t.heads, t.width, t.width
  tokens = t.batch * t.length * t.num_heads * t.width
  return tpu.call(
      functools.partial(kernel, steps=steps), ins, outs, grid=grid,
      semantics=('parallel', 'parallel', 'arbitrary'),
      scratch=[steps.decay, state] + [(states, *state)] * bool(states),
      interpret=steps.options.interpret,
      flops=2 * products * tokens * max(steps.chunk, t.width),
      transcendentals=products * tokens * (steps.options.activation == 'silu'))
