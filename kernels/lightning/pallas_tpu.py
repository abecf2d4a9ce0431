"""Lightning attention for TPU: one kernel forward, one backward.

The grid is (B, head groups, blocks of rows). The state of the recurrence stays
on chip between blocks, and is written once per block for the backward pass. The
backward kernel walks from the last block to the first. Within a block it
recomputes the states forward, then walks backward over the chunks.

If q, k and v are packed, a block holds rows of all three, and so do the blocks
of their gradients. If there is one sequence and one group of heads, a chip with
two cores computes half of the blocks on each, after a kernel that computes the
state between the halves.
"""

import dataclasses
import functools

import jax.numpy as jnp
from jax.experimental import pallas as pl

from lra.kernels import dispatch, tpu
from lra.kernels.lightning.pallas_tpu_steps import Steps, call, scalars

# Limits of packed inputs: the widest row of q, and the largest total state.
MAX_ROW = 2048
MAX_STATE = 1024 * 1024


def supported(shape, dtype, state=False):
  tpu.supported(shape, dtype)
  tiles = tpu.tiling(shape, dtype)
  steps = Steps(tiles, None, dtype, packed=False)
  tpu.check_memory(tiles, dtype, scratch=[steps.decay], state=state,
                   states=1 + steps.count)


def forward(inputs, options, save):
  """Returns (out, final state or None, states before blocks or None).

  Packed inputs wider than MAX_ROW or MAX_STATE are copied into three arrays.
  """
  inputs, steps = _plan(inputs, options)
  tiles, dtype = steps.tiles, steps.dtype
  like = functools.partial(dispatch.like, inputs.arrays[0])
  b, length, h, d = inputs.shape
  state = inputs.state
  if tiles.parts > 1:
    middle = _forward(steps, inputs, state,
                      {'state': like((1, h, d, d), jnp.float32)}, 1)
    state = _joined(state, middle['state'])
  entries = b * tiles.parts
  final = like((entries, h, d, d), jnp.float32)
  outs = {'o': like((b, length, h * d), dtype),
          'state': final if options.return_state else None,
          'saved': like((b, tiles.blocks, h, d, d), dtype) if save else None}
  outs = _forward(steps, inputs, state, outs, entries)
  final = outs['state']
  if final is not None:
    final = final[entries - b :]
  return outs['o'].reshape(inputs.shape), final, outs['saved']


def backward(inputs, saved, do, dfinal, options):
  """Returns gradients of q, k, v (three or one array), bias, initial state."""
  inputs, steps = _plan(inputs, options)
  tiles = steps.tiles
  like = functools.partial(dispatch.like, inputs.arrays[0])
  b, _, h, d = inputs.shape
  if tiles.parts > 1:
    second = dataclasses.replace(steps, part=1)
    middle = {'dstate': (None, like((1, h, d, d), jnp.float32))}
    middle = _backward(second, inputs, None, do, dfinal, middle, 1)
    dfinal = _joined(middle['dstate'], dfinal)
  entries = b * tiles.parts
  outs = steps.results(steps.back, like)
  outs['bias'] = tpu.bias_sums(inputs, tiles, lambda i, g, n: (i, g, n),
                               entries)
  dstate = like((entries, h, d, d), jnp.float32)
  outs['dstate'] = None, None if inputs.state is None else dstate
  outs = _backward(steps, inputs, saved, do, dfinal, outs, entries)
  dstate = outs['dstate']
  if dstate is not None:
    dstate = dstate[:b]
  return *tpu.gradients(inputs, outs, outs['bias']), dstate


def _plan(inputs, options):
  """Returns (`Inputs`, `Steps`); unpacks inputs that are too wide packed.
  """
  _, _, h, d = inputs.shape
  fits = h * d <= MAX_ROW and h * d * d <= MAX_STATE and h <= tpu.MAX_HEADS
  wide = inputs.packed and fits
  if not wide:
    inputs = inputs._replace(arrays=inputs.apart())
  tiles = tpu.tiling(inputs.shape, inputs.dtype, wide)
  return inputs, Steps(tiles, options, inputs.dtype, wide)


def _joined(first, second):
  """Joins the states of two parts, [1, H, Dh, Dh] or None for zeros."""
  there = first if second is None else second
  states = (jnp.zeros_like(there) if x is None else x for x in (first, second))
  return jnp.concatenate(list(states))


def _entry(tiles, x):
  """Returns (BlockSpec, x) for states x, [entries, H, Dh, Dh]."""
  return tiles.state(lambda i, g, n: (i, g, n)), x


def _saved(tiles, where, x):
  """Returns (BlockSpec, x) for x, states before blocks [B, blocks, H, Dh, Dh].
  """
  shape = 1, 1, tiles.heads, tiles.width, tiles.width
  return tiles.spec(shape, where, lambda b, g, n: (b, n, g, 0, 0)), x


def _forward(steps, inputs, state, outs, entries):
  """Runs the forward kernel for the results in `outs`: 'o', 'state', 'saved'.
  """
  tiles, where = steps.tiles, steps.forth
  o, saved = outs.get('o'), outs.get('saved')
  names = ('k', 'v') if o is None else ('q', 'k', 'v')
  ins = {**steps.operands(inputs, where, names),
         'slopes': scalars(inputs.slopes),
         'mask': (tiles.tokens(where), tpu.mask_rows(inputs.mask)),
         'state': _entry(tiles, state)}
  outs = {'o': (tiles.tile(where), o), 'state': _entry(tiles, outs['state']),
          'saved': _saved(tiles, where, saved)}
  grid = entries, tiles.groups, tiles.steps
  return call(steps, _forward_kernel, ins, outs, grid=grid, products=4)


def _forward_kernel(ins, outs, decay_scr, state_scr, *, steps):
  n, dtype = pl.program_id(2), steps.dtype
  block = steps.block(pl.program_id(0), n)
  nn, nt, tn = tpu.products(dtype)
  slopes = steps.slopes(ins)

  @pl.when(n == 0)
  def _():
    steps.fill_decay(slopes, decay_scr)
    steps.start(state_scr, ins.state)

  @steps.if_there(block)
  def _():
    if outs.saved is not None:
      outs.saved[0, 0] = state_scr[...].astype(dtype)

    @pl.loop(0, steps.count)
    def _(c):
      rows, valid, length = steps.rows(ins, block, c)
      for h, lane in tpu.head_lanes(steps.tiles):
        start, end, left = steps.decays(slopes[h], length)
        k, v = steps.load(ins, 'kv', rows, valid, h)
        state = state_scr[h]
        if outs.o is not None:
          (q,) = steps.load(ins, 'q', rows, None, h)
          scores = (nt(q, k) * decay_scr[h]).astype(dtype)
          o = nn(scores, v) + nn(q, state.astype(dtype)) * start
          outs.o[0, rows, lane] = tpu.keep(valid, o).astype(dtype)
        state_scr[h] = state * left + tn((k * end).astype(dtype), v)

  if outs.state is not None:
    @pl.when(n == pl.num_programs(2) - 1)
    def _():
      outs.state[0] = state_scr[...]


def _backward(steps, inputs, saved, do, dfinal, outs, entries):
  """Runs the backward kernel, for all gradients or for 'dstate' alone."""
  tiles, where = steps.tiles, steps.back
  names = 'q' if saved is None else ('q', 'k', 'v')
  ins = {**steps.operands(inputs, where, names),
         'slopes': scalars(inputs.slopes),
         'do': (tiles.tile(where), tpu.flat(do)),
         'saved': _saved(tiles, where, saved),
         'mask': (tiles.tokens(where), tpu.mask_rows(inputs.mask)),
         'dstate': _entry(tiles, dfinal)}
  outs = {**outs, 'dstate': _entry(tiles, outs['dstate'][1])}
  return call(steps, _backward_kernel, ins, outs,
              grid=(entries, tiles.groups, tiles.steps), products=10,
              states=steps.count)


def _backward_kernel(ins, outs, decay_scr, dstate_scr, states_scr, *, steps):
  n, dtype = pl.program_id(2), steps.dtype
  block = steps.block(pl.program_id(0), pl.num_programs(2) - 1 - n)
  nn, nt, tn = tpu.products(dtype)
  slopes = steps.slopes(ins)
  heads = range(steps.tiles.heads)
  bias = getattr(outs, 'bias', None)

  @pl.when(n == 0)
  def _():
    steps.fill_decay(slopes, decay_scr)
    steps.start(dstate_scr, ins.dstate)
    if bias is not None:
      bias[...] = jnp.zeros_like(bias)

  def states():
    """Computes the state before every chunk of the block."""
    states_scr[0] = ins.saved[0, 0].astype(jnp.float32)

    @pl.loop(0, steps.count - 1)
    def _(c):
      rows, valid, length = steps.rows(ins, block, c)
      for h in heads:
        _, end, left = steps.decays(slopes[h], length)
        k, v = steps.load(ins, 'kv', rows, valid, h)
        kv = tn((k * end).astype(dtype), v)
        states_scr[c + 1, h] = states_scr[c, h] * left + kv

  @steps.if_there(block)
  def _():
    if ins.saved is not None:
      states()

    @pl.loop(0, steps.count)
    def _(i):
      c = steps.count - 1 - i
      rows, valid, length = steps.rows(ins, block, c)
      for h, lane in tpu.head_lanes(steps.tiles):
        start, end, left = steps.decays(slopes[h], length)
        (q,) = steps.load(ins, 'q', rows, valid, h)
        do = tpu.keep(valid, ins.do[0, rows, lane])
        dstate = dstate_scr[h]
        if ins.saved is not None:
          k, v = steps.load(ins, 'kv', rows, valid, h)
          state, carried = states_scr[c, h].astype(dtype), dstate.astype(dtype)
          scores = (nt(q, k) * decay_scr[h]).astype(dtype)
          dscores = (nt(do, v) * decay_scr[h]).astype(dtype)
          grads = (nn(dscores, k) + nt(do, state) * start,
                   tn(dscores, q) + nt(v, carried) * end,
                   tn(scores, do) + nn(k, carried) * end)
          for which, grad in enumerate(grads):
            steps.store(ins, outs, bias, which, rows, valid, h, grad)
        dstate_scr[h] = dstate * left + tn((q * start).astype(dtype), do)

  if outs.dstate is not None:
    @pl.when(n == pl.num_programs(2) - 1)
    def _():
      outs.dstate[0] = dstate_scr[...]
