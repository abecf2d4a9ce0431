"""Lightning attention for TPU: one kernel forward, one backward.

The grid is (B, head groups, blocks of rows). A block is a run of chunks; the
state of the recurrence stays on chip from block to block, and for the backward
pass it is written once per block, not per chunk. The backward kernel walks
the blocks from the last to the first: inside one it first runs the states
forward again, then the chunks backward with the gradient of the state.
"""

import dataclasses
import functools

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels import chunks, dispatch, tpu


def supported(shape, dtype):
  """Raises NotImplementedError for what `forward` cannot take."""
  tpu.supported(shape, dtype)


def forward(inputs, options, save):
  """(out, final state or None, states in front of the blocks or None)."""
  (q, k, v), mask = inputs.apart(), inputs.mask
  slopes, initial_state = inputs.slopes, inputs.state
  plan = _Plan(tpu.tiling(q.shape, q.dtype), options, q.dtype)
  rows, mask_rows, state, saved = _specs(plan.tiles, lambda n: n)
  b, _, h, d = q.shape
  like = functools.partial(dispatch.like, q)
  ins = {
    'slopes': _slopes(slopes),
    'q': (rows, tpu.flat(q)),
    'k': (rows, tpu.flat(k)),
    'v': (rows, tpu.flat(v)),
    'mask': (mask_rows, tpu.mask_rows(mask)),
    'state': (state, initial_state),
  }
  final = like((b, h, d, d), jnp.float32)
  before = like((b, plan.tiles.blocks, h, d, d), q.dtype)
  outs = {
    'o': (rows, like(tpu.flat(q).shape, q.dtype)),
    'state': (state, final if options.return_state else None),
    'saved': (saved, before if save else None),
  }
  outs = plan.call(_forward_kernel, ins, outs, scratch=[])
  return outs['o'].reshape(q.shape), outs['state'], outs['saved']


def backward(inputs, saved, do, dfinal_state, options):
  """(gradients of q, k, v; None; gradient of the initial state or None)."""
  (q, k, v), mask = inputs.apart(), inputs.mask
  slopes, initial_state = inputs.slopes, inputs.state
  plan = _Plan(tpu.tiling(q.shape, q.dtype), options, q.dtype)
  last = plan.tiles.blocks - 1
  rows, mask_rows, state, before = _specs(plan.tiles, lambda n: last - n)
  ins = {
    'slopes': _slopes(slopes),
    'q': (rows, tpu.flat(q)),
    'k': (rows, tpu.flat(k)),
    'v': (rows, tpu.flat(v)),
    'do': (rows, tpu.flat(do)),
    'saved': (before, saved),
    'mask': (mask_rows, tpu.mask_rows(mask)),
    'dstate': (state, dfinal_state),
  }
  grad = dispatch.like(q, tpu.flat(q).shape, q.dtype)
  dinitial = None
  if initial_state is not None:
    dinitial = dispatch.like(q, initial_state.shape, jnp.float32)
  outs = {
    'dq': (rows, grad),
    'dk': (rows, grad),
    'dv': (rows, grad),
    'dstate': (state, dinitial),
  }
  states = (plan.count, *plan.state_shape)
  outs = plan.call(_backward_kernel, ins, outs, scratch=[states])
  grads = (outs[name].reshape(q.shape) for name in ('dq', 'dk', 'dv'))
  return tuple(grads), None, outs['dstate']


def _slopes(slopes):
  """All slopes as scalars; two axes, so that vmap can add a third."""
  return pl.BlockSpec(memory_space=pltpu.SMEM), slopes[None]


def _specs(tiles, order):
  """Blocks of rows, of the mask, of a state and of the saved states."""
  heads, width = tiles.heads, tiles.width
  return (
    pl.BlockSpec(
      (1, tiles.rows, tiles.lanes), lambda b, g, n: (b, order(n), g)
    ),
    pl.BlockSpec((1, 1, tiles.rows), lambda b, g, n: (b, 0, order(n))),
    pl.BlockSpec((1, heads, width, width), lambda b, g, n: (b, g, 0, 0)),
    pl.BlockSpec(
      (1, 1, heads, width, width), lambda b, g, n: (b, order(n), g, 0, 0)
    ),
  )


@dataclasses.dataclass(frozen=True)
class _Plan:
  """The static numbers of a call, and the walk over the chunks of a block."""

  tiles: tpu.Tiling
  options: object
  dtype: object

  @property
  def chunk(self):
    return min(tpu.STEP, self.tiles.rows)

  @property
  def count(self):
    """Chunks in a block."""
    return self.tiles.rows // self.chunk

  @property
  def state_shape(self):
    return (self.tiles.heads, self.tiles.width, self.tiles.width)

  def call(self, kernel, ins, outs, scratch):
    tiles = self.tiles
    decay = (tiles.heads, self.chunk, self.chunk)
    return tpu.call(
      functools.partial(kernel, plan=self),
      ins,
      outs,
      grid=(tiles.batch, tiles.groups, tiles.blocks),
      semantics=('parallel', 'parallel', 'arbitrary'),
      scratch=[decay, self.state_shape, *scratch],
      interpret=self.options.interpret,
    )

  def slopes(self, ins):
    """The slopes of the heads of this block."""
    first = pl.program_id(1) * self.tiles.heads
    return [ins.slopes[0, first + h] for h in range(self.tiles.heads)]

  def fill_decay(self, slopes, decay_scr):
    """scale * exp(-slope (i - j)) of every head, once per sequence."""
    shape = (self.chunk, self.chunk)
    i = lax.broadcasted_iota(jnp.int32, shape, 0)
    j = lax.broadcasted_iota(jnp.int32, shape, 1)
    for h, slope in enumerate(slopes):
      decay_scr[h] = chunks.within(slope, i, j) * self.options.scale

  def rows(self, ins, block, c):
    """The rows of chunk c of a block: slice, which count, how many exist."""
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
    """Columns [C, 1] from the start and to the end; what a state keeps."""
    i = lax.broadcasted_iota(jnp.int32, (self.chunk, 1), 0)
    start = chunks.from_start(slope, i) * self.options.scale
    return start, chunks.to_end(slope, i, length), chunks.over(slope, length)


def _forward_kernel(ins, outs, decay_scr, state_scr, *, plan):
  n, dtype = pl.program_id(2), plan.dtype
  last = n == pl.num_programs(2) - 1
  nn, nt, tn = tpu.products(dtype)
  slopes = plan.slopes(ins)

  @pl.when(n == 0)
  def _():
    plan.fill_decay(slopes, decay_scr)
    if ins.state is None:
      state_scr[...] = jnp.zeros_like(state_scr)
    else:
      state_scr[...] = ins.state[0]

  if outs.saved is not None:
    outs.saved[0, 0] = state_scr[...].astype(dtype)

  @pl.loop(0, plan.count)
  def _(c):
    rows, valid, length = plan.rows(ins, n, c)
    for h, lane in tpu.head_lanes(plan.tiles):
      start, end, left = plan.decays(slopes[h], length)
      q = ins.q[0, rows, lane]
      k, v = (tpu.keep(valid, x[0, rows, lane]) for x in (ins.k, ins.v))
      state = state_scr[h]
      scores = (nt(q, k) * decay_scr[h]).astype(dtype)
      o = nn(scores, v) + nn(q, state.astype(dtype)) * start
      outs.o[0, rows, lane] = tpu.keep(valid, o).astype(dtype)
      state_scr[h] = state * left + tn((k * end).astype(dtype), v)

  if outs.state is not None:

    @pl.when(last)
    def _():
      outs.state[0] = state_scr[...]


def _backward_kernel(ins, outs, decay_scr, dstate_scr, states_scr, *, plan):
  n, dtype = pl.program_id(2), plan.dtype
  block = pl.num_programs(2) - 1 - n
  nn, nt, tn = tpu.products(dtype)
  slopes = plan.slopes(ins)

  @pl.when(n == 0)
  def _():
    plan.fill_decay(slopes, decay_scr)
    if ins.dstate is None:
      dstate_scr[...] = jnp.zeros_like(dstate_scr)
    else:
      dstate_scr[...] = ins.dstate[0]

  states_scr[0] = ins.saved[0, 0].astype(jnp.float32)

  @pl.loop(0, plan.count - 1)
  def _(c):
    rows, valid, length = plan.rows(ins, block, c)
    for h, lane in tpu.head_lanes(plan.tiles):
      _, end, left = plan.decays(slopes[h], length)
      k, v = (tpu.keep(valid, x[0, rows, lane]) for x in (ins.k, ins.v))
      kv = tn((k * end).astype(dtype), v)
      states_scr[c + 1, h] = states_scr[c, h] * left + kv

  @pl.loop(0, plan.count)
  def _(i):
    c = plan.count - 1 - i
    rows, valid, length = plan.rows(ins, block, c)
    for h, lane in tpu.head_lanes(plan.tiles):
      start, end, left = plan.decays(slopes[h], length)
      refs = (ins.q, ins.k, ins.v, ins.do)
      q, k, v, do = (tpu.keep(valid, x[0, rows, lane]) for x in refs)
      state, dstate = states_scr[c, h].astype(dtype), dstate_scr[h]
      carried = dstate.astype(dtype)
      scores = (nt(q, k) * decay_scr[h]).astype(dtype)
      dscores = (nt(do, v) * decay_scr[h]).astype(dtype)
      dq = nn(dscores, k) + nt(do, state) * start
      dk = tn(dscores, q) + nt(v, carried) * end
      dv = tn(scores, do) + nn(k, carried) * end
      grads = (outs.dq, dq), (outs.dk, dk), (outs.dv, dv)
      for ref, grad in grads:
        ref[0, rows, lane] = tpu.keep(valid, grad).astype(dtype)
      dstate_scr[h] = dstate * left + tn((q * start).astype(dtype), do)

  if outs.dstate is not None:

    @pl.when(block == 0)
    def _():
      outs.dstate[0] = dstate_scr[...]
