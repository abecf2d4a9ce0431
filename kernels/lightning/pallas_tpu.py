"""Lightning attention for TPU: one kernel forward, one backward.

The grid is (B, head groups, blocks of rows). The state of the recurrence stays
on chip between blocks, and is written once per block for the backward pass. The
backward kernel walks from the last block to the first. Within a block it
recomputes the states forward, then walks backward over the chunks.

If q, k and v are packed, a block holds rows of all three, and so do the blocks
of their gradients.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lra.kernels import chunks, dispatch, tpu

# Limits of packed inputs: the widest row of q, and the largest total state.
MAX_ROW = 2048
MAX_STATE = 1024 * 1024


def supported(shape, dtype, state=False):
  tpu.supported(shape, dtype)
  tiles = tpu.tiling(shape, dtype)
  steps = _Steps(tiles, None, dtype)
  tpu.check_memory(tiles, dtype, scratch=[steps.decay], state=state,
                   states=1 + steps.count)


def forward(inputs, options, save):
  """Saves the states before blocks, [B, blocks, H, Dh, Dh]."""
  inputs, steps = _plan(inputs, options)
  tiles, dtype, where = steps.tiles, steps.dtype, steps.forth
  like = functools.partial(dispatch.like, inputs.arrays[0])
  b, length, h, d = inputs.shape
  outs = {'o': (tiles.tile(where), like((b, length, h * d), dtype)),
          'state': (tiles.state(where), like((b, h, d, d), jnp.float32)
                    if options.return_state else None),
          'saved': steps.saved(where, like((b, tiles.blocks, h, d, d), dtype)
                               if save else None)}
  outs = _call(steps, _forward_kernel, inputs, where,
               {'state': (tiles.state(where), inputs.state)}, outs, products=4)
  return (outs['o'].reshape(inputs.shape), outs['state']), outs['saved']


def backward(inputs, saved, cotangents, options):
  do, dfinal = cotangents
  given, (inputs, steps) = inputs, _plan(inputs, options)
  tiles, where = steps.tiles, steps.back
  like = functools.partial(dispatch.like, inputs.arrays[0])
  b, length, h, d = inputs.shape
  if steps.packed:
    outs = {'dq dk dv': (tiles.row(where),
                         like((b, length, 3 * h * d), steps.dtype))}
  else:
    outs = {n: (tiles.tile(where), like((b, length, h * d), steps.dtype))
            for n in ('dq', 'dk', 'dv')}
  outs['bias'] = tpu.bias_sums(inputs, tiles, where)
  outs['dstate'] = tiles.state(where), None if inputs.state is None else like(
      (b, h, d, d), jnp.float32)
  ins = {'do': (tiles.tile(where), tpu.flat(do)),
         'saved': steps.saved(where, saved),
         'dstate': (tiles.state(where), dfinal)}
  outs = _call(steps, _backward_kernel, inputs, where, ins, outs, products=10,
               states=steps.count)
  return tpu.gradients(given, outs, outs['dstate'])


def _plan(inputs, options):
  """Returns (`Inputs`, `_Steps`); unpacks inputs too wide packed."""
  _, _, h, d = inputs.shape
  fits = h * d <= MAX_ROW and h * d * d <= MAX_STATE and h <= tpu.MAX_HEADS
  wide = inputs.packed and fits
  if not wide:
    inputs = inputs._replace(arrays=inputs.apart())
  tiles = tpu.tiling(inputs.shape, inputs.dtype, wide)
  return inputs, _Steps(tiles, options, inputs.dtype, wide)


@dataclasses.dataclass(frozen=True)
class _Steps(tpu.Steps):
  """The walk over the chunks of a block."""

  def forth(self, b, g, n):
    """Returns the block (b, g, n) of a grid step; blocks go first to last."""
    return b, g, n

  def back(self, b, g, n):
    return b, g, self.tiles.blocks - 1 - n

  @property
  def chunk(self):
    return min(tpu.STEP, self.tiles.rows)

  @property
  def count(self):
    return self.tiles.rows // self.chunk

  @property
  def decay(self):
    return self.tiles.heads, self.chunk, self.chunk

  def saved(self, where, x):
    """Returns (BlockSpec, x) for x, [B, blocks, H, Dh, Dh]."""
    shape = 1, 1, self.tiles.heads, self.tiles.width, self.tiles.width
    return self.tiles.spec(shape, where, lambda b, g, n: (b, n, g, 0, 0)), x

  def slopes(self, ins):
    first = pl.program_id(1) * self.tiles.heads
    return [ins.slopes[0, first + h] for h in self.heads()]

  def fill_decay(self, slopes, decay_scr):
    """Writes scale * exp(-slope (i - j)) of every head, once per sequence."""
    shape = (self.chunk, self.chunk)
    i = lax.broadcasted_iota(jnp.int32, shape, 0)
    j = lax.broadcasted_iota(jnp.int32, shape, 1)
    for h, slope in enumerate(slopes):
      decay_scr[h] = chunks.within(slope, i, j) * self.options.scale

  def rows(self, ins, block, c):
    """Returns (slice of chunk c, `tpu.valid` rows, number of rows there)."""
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
    """Returns (scale * `chunks.from_start`, `chunks.to_end`, `chunks.over`)."""
    i = lax.broadcasted_iota(jnp.int32, (self.chunk, 1), 0)
    start = chunks.from_start(slope, i) * self.options.scale
    return start, chunks.to_end(slope, i, length), chunks.over(slope, length)

  def load(self, ins, names, rows, valid, head):
    """Loads and activates values [C, Dh] of a head; 0 in invalid rows."""
    return [self._activated(tpu.keep(valid, self.read(ins, 'qkv'.index(n), head,
                                                      rows))) for n in names]

  def _activated(self, x):
    if self.options.activation != 'silu':
      return x
    x = x.astype(jnp.float32)
    return (x * jax.nn.sigmoid(x)).astype(self.dtype)

  def store(self, ins, outs, which, rows, valid, head, grad):
    """Stores the gradient of q, k or v from that of the activated operand."""
    if self.options.activation == 'silu':
      x = tpu.keep(valid, self.read(ins, which, head, rows))
      x = x.astype(jnp.float32)
      s = jax.nn.sigmoid(x)
      grad = grad * (s * (1 + x * (1 - s)))
    self.write(outs, which, head, tpu.keep(valid, grad), rows)


def _call(steps, kernel, inputs, where, ins, outs, *, products, states=0):
  """Calls `tpu.call` with scratch memory for decays and states.

  `products` is the number of matmuls per chunk, `states` the number of states
  in scratch memory besides the running one.
  """
  t = steps.tiles
  # Slopes are read as scalars, with two axes, so that vmap can add a third.
  ins = {**steps.operands(inputs, where, **dict.fromkeys('qkv', where)),
         'slopes': (pl.BlockSpec(memory_space=pltpu.SMEM), inputs.slopes[None]),
         'mask': (t.tokens(where), tpu.mask_rows(inputs.mask)), **ins}
  state = t.heads, t.width, t.width
  tokens = t.batch * t.length * t.num_heads * t.width
  return tpu.call(
      functools.partial(kernel, steps=steps), ins, outs,
      grid=(t.batch, t.groups, t.blocks),
      semantics=('parallel', 'parallel', 'arbitrary'),
      scratch=[steps.decay, state] + [(states, *state)] * bool(states),
      interpret=steps.options.interpret,
      flops=2 * products * tokens * max(steps.chunk, t.width),
      transcendentals=products * tokens * (steps.options.activation == 'silu'))


def _forward_kernel(ins, outs, decay_scr, state_scr, *, steps):
  n, dtype = pl.program_id(2), steps.dtype
  nn, nt, tn = tpu.products(dtype)
  slopes = steps.slopes(ins)

  @pl.when(n == 0)
  def _():
    steps.fill_decay(slopes, decay_scr)
    steps.start([state_scr], [ins.state])

  if outs.saved is not None:
    outs.saved[0, 0] = state_scr[...].astype(dtype)

  @pl.loop(0, steps.count)
  def _(c):
    rows, valid, length = steps.rows(ins, n, c)
    for h in steps.heads():
      start, end, left = steps.decays(slopes[h], length)
      k, v = steps.load(ins, 'kv', rows, valid, h)
      state = state_scr[h]
      (q,) = steps.load(ins, 'q', rows, None, h)
      scores = (nt(q, k) * decay_scr[h]).astype(dtype)
      o = nn(scores, v) + nn(q, state.astype(dtype)) * start
      outs.o[0, rows, steps.lane(h)] = tpu.keep(valid, o).astype(dtype)
      state_scr[h] = state * left + tn((k * end).astype(dtype), v)

  if outs.state is not None:
    @pl.when(n == pl.num_programs(2) - 1)
    def _():
      outs.state[0] = state_scr[...]


def _backward_kernel(ins, outs, decay_scr, dstate_scr, states_scr, *, steps):
  n, dtype = pl.program_id(2), steps.dtype
  block = steps.tiles.blocks - 1 - n
  nn, nt, tn = tpu.products(dtype)
  slopes = steps.slopes(ins)

  @pl.when(n == 0)
  def _():
    steps.fill_decay(slopes, decay_scr)
    steps.start([dstate_scr], [ins.dstate])
    if outs.bias is not None:
      outs.bias[...] = jnp.zeros_like(outs.bias)

  # The state before every chunk of the block.
  states_scr[0] = ins.saved[0, 0].astype(jnp.float32)

  @pl.loop(0, steps.count - 1)
  def _(c):
    rows, valid, length = steps.rows(ins, block, c)
    for h in steps.heads():
      _, end, left = steps.decays(slopes[h], length)
      k, v = steps.load(ins, 'kv', rows, valid, h)
      kv = tn((k * end).astype(dtype), v)
      states_scr[c + 1, h] = states_scr[c, h] * left + kv

  @pl.loop(0, steps.count)
  def _(i):
    c = steps.count - 1 - i
    rows, valid, length = steps.rows(ins, block, c)
    for h in steps.heads():
      start, end, left = steps.decays(slopes[h], length)
      (q,) = steps.load(ins, 'q', rows, valid, h)
      do = tpu.keep(valid, ins.do[0, rows, steps.lane(h)])
      dstate = dstate_scr[h]
      k, v = steps.load(ins, 'kv', rows, valid, h)
      state, carried = states_scr[c, h].astype(dtype), dstate.astype(dtype)
      scores = (nt(q, k) * decay_scr[h]).astype(dtype)
      dscores = (nt(do, v) * decay_scr[h]).astype(dtype)
      grads = (nn(dscores, k) + nt(do, state) * start,
               tn(dscores, q) + nt(v, carried) * end,
               tn(scores, do) + nn(k, carried) * end)
      for which, grad in enumerate(grads):
        steps.store(ins, outs, which, rows, valid, h, grad)
      dstate_scr[h] = dstate * left + tn((q * start).astype(dtype), do)

  if outs.dstate is not None:
    @pl.when(n == pl.num_programs(2) - 1)
    def _():
      outs.dstate[0] = dstate_scr[...]
