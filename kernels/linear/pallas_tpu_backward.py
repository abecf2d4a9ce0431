"""Linear attention for TPU, backward.

The grid is (B, head groups, 3 * blocks of rows). The first third reads q and
the gradient of the output, writes dq and sums dS and dz. Then two steps per
block read k and v and write dk and dv. Each step writes one tile of gradients,
also if one array packs all gradients. Operands that a step does not use stay on
one block, so only 7 tensors are read or written.
"""

import functools

import jax.numpy as jnp
from jax.experimental import pallas as pl

from lra.kernels import dispatch, tpu
from lra.kernels.linear.pallas_tpu_steps import (
  call,
  operands,
  pair,
  plan,
  unpaired,
)


def backward(inputs, saved, do, dfinal, options):
  """Returns gradients of q, k, v, of the bias and of the initial state.

  If packed inputs have an H * Dh that is no multiple of 128, blocks are whole
  rows. Then dq is written together with dk and dv, and both sweeps read q and
  do.
  """
  steps = plan(inputs, options)
  run = _halves if steps.tiles.parts > 1 else _sweeps
  outs, dkv, dz = run(steps, inputs, saved, do, pair(dfinal, options))
  dstate = None
  if inputs.state is not None:
    dstate = unpaired(dkv, dz, options)
  return *tpu.gradients(inputs, outs, outs['bias']), dstate


def _sweeps(steps, inputs, saved, do, dfinal):
  """Returns (results of the kernel, gradients of the initial S and z)."""
  tiles, blocks, last = steps.tiles, steps.tiles.blocks, steps.tiles.blocks - 1
  b, length, h, d = inputs.shape
  like = functools.partial(dispatch.like, inputs.arrays[0])
  queries = lambda b, g, t: (b, g, jnp.minimum(t, last))
  keys = lambda b, g, t: (b, g, _block(t, blocks))
  # Only the first of a block's two steps needs v. In the second, the next block
  # of v is loaded.
  values = lambda b, g, t: (b, g, jnp.minimum(_block(t + 1, blocks), last))
  both = lambda b, g, t: (b, g, jnp.where(t < blocks, t, _block(t, blocks)))
  state = lambda x, rows=None: (tiles.state(both, rows), x)
  ins = {**operands(steps, inputs, queries, keys, values, both),
         'do': (tiles.tile(both if steps.rows else queries), tpu.flat(do)),
         'mask': (tiles.tokens(both), tpu.mask_rows(inputs.mask)),
         'kv': state(saved[0]), 'z': state(saved[1], 1),
         'dkv': state(dfinal[0]), 'dz': state(dfinal[1], 1)}
  kv = z = None
  if inputs.state is not None:
    kv = like((b, h, d, d), jnp.float32)
    z = like((b, h, 1, d), jnp.float32) if steps.options.normalize else None
  outs = {'dkv': state(kv), 'dz': state(z, 1),
          'bias': tpu.bias_sums(inputs, tiles, both, b)}

  def column(b, g, t):
    which = jnp.where(t < blocks, 0, 1 + _which(t, blocks))
    return b, which * tiles.groups + g, both(b, g, t)[2]

  if inputs.packed:
    where = tiles.row(keys) if steps.rows else tiles.tile(column)
    outs['dq dk dv'] = where, like((b, length, 3 * h * d), steps.dtype)
  else:
    for name, where in (('dq', queries), ('dk', keys), ('dv', keys)):
      outs[name] = tiles.tile(where), like((b, length, h * d), steps.dtype)
  outs = call(steps, _sweeps_kernel, ins, outs,
              grid=(b, tiles.groups, 3 * blocks),
              semantics=('parallel', 'parallel', 'arbitrary'), products=5)
  return outs, outs['dkv'], outs['dz']


def _block(t, blocks):
  """Returns the block of step t of the second sweep: two steps per block."""
  return jnp.maximum(t - blocks, 0) >> 1


def _which(t, blocks):
  """Returns 0 at a step that writes dk, 1 at one that writes dv."""
  return (t - blocks) & 1


def _sweeps_kernel(ins, outs, dkv, dz, *, steps):
  t, blocks = pl.program_id(2), steps.tiles.blocks
  block, which = _block(t, blocks), _which(t, blocks)

  @pl.when(t == 0)
  def _():
    steps.start((dkv, dz), (None, None))
    if outs.bias is not None:
      outs.bias[...] = jnp.zeros_like(outs.bias)

  pl.when(t < blocks)(
      lambda: steps.queries(ins, outs, t, (dkv, dz), store=not steps.rows))

  @pl.when(t == blocks)
  def _():
    steps.finish((dkv, dz), (ins.dkv, ins.dz))
    for out, ref in ((outs.dkv, dkv), (outs.dz, dz)):
      if out is not None:
        out[0] = ref[...]

  @pl.when((t >= blocks) & (which == 0))
  def _():
    if steps.rows:
      steps.queries(ins, outs, block, None)
    steps.keys(ins, outs, block, dkv, dz)

  pl.when((t >= blocks) & (which == 1))(
      lambda: steps.values(ins, outs, block, dkv))


def _halves(steps, inputs, saved, do, dfinal):
  """Computes `_sweeps` for one sequence, in two kernels: dq, then dk and dv.

  In each kernel, two cores share the blocks of rows.
  """
  tiles, options = steps.tiles, steps.options
  _, _, h, d = inputs.shape
  q, k, v = tpu.columns(inputs, tiles)
  like = functools.partial(dispatch.like, q[0])
  part, total = (lambda p, n, *w: (p, 0, n)), (lambda p, n, *w: (0, 0, n))
  mask = tiles.tokens(tiles.half), tpu.mask_rows(inputs.mask)
  bias = tpu.bias_sums(inputs, tiles, part, tiles.parts)
  # The simulator cannot update an array whose last block is ragged.
  packed = tpu.by_columns(inputs, tiles) and not tiles.ragged
  columns = 3 * h * d if packed else h * d
  grad = like((1, tiles.length, columns), steps.dtype)
  outs = call(
      steps, _queries_kernel,
      {'q': (tiles.tile(tiles.half, q[1]), q[0]),
       'do': (tiles.tile(tiles.half), tpu.flat(do)), 'mask': mask,
       'kv': (tiles.state(total), saved[0]),
       'z': (tiles.state(total, 1), saved[1])},
      {'dq dk dv' if packed else 'dq': (tiles.tile(tiles.half), grad),
       'dkv': (tiles.state(part), like((tiles.parts, h, d, d), jnp.float32)),
       'dz': (tiles.state(part, 1), like((tiles.parts, h, 1, d), jnp.float32)
                                    if options.normalize else None),
       'bias': bias},
      grid=(tiles.parts, tiles.steps), semantics=('parallel', 'arbitrary'),
      products=3)
  dkv, dz = tpu.added(*(x if x is None else x * options.scale
                        for x in (outs['dkv'], outs['dz'])), dfinal)
  ins = {'k': (tiles.tile(tiles.half, k[1]), k[0]),
         'v': (tiles.tile(tiles.half, v[1]), v[0]), 'mask': mask,
         'dkv': (tiles.state(total), dkv), 'dz': (tiles.state(total, 1), dz)}
  more = {'bias': bias}
  if packed:
    def column(p, n, which):
      # Steps beyond the last block stay on dv, which is written last.
      is_block = tiles.block(p, n) < tiles.blocks
      return 0, jnp.where(is_block, 1 + which, 2), tiles.half(p, n)[2]

    # The result updates the array that contains dq.
    ins['grads'] = pl.BlockSpec(memory_space=pl.ANY), outs['dq dk dv']
    more['dq dk dv'] = tiles.tile(column), grad
  else:
    more['dk'] = more['dv'] = tiles.tile(tiles.half), grad
  more = call(steps, _keys_kernel, ins, more,
              grid=(tiles.parts, tiles.steps, 2),
              semantics=('parallel', 'arbitrary', 'arbitrary'), products=2)
  if not packed:
    more['dq'] = outs['dq']
  if bias[1] is not None:
    more['bias'] += outs['bias']
  return more, dkv, dz


def _queries_kernel(ins, outs, dkv, dz, *, steps):
  block = steps.tiles.block(pl.program_id(0), pl.program_id(1))

  @pl.when(pl.program_id(1) == 0)
  def _():
    steps.start((dkv, dz), (None, None))
    if outs.bias is not None:
      outs.bias[...] = jnp.zeros_like(outs.bias)

  pl.when(block < steps.tiles.blocks)(
      lambda: steps.queries(ins, outs, block, (dkv, dz)))

  outs.dkv[0] = dkv[...]
  if outs.dz is not None:
    outs.dz[0] = dz[...]


def _keys_kernel(ins, outs, dkv, dz, *, steps):
  del dkv, dz  # scratch memory
  n, which = pl.program_id(1), pl.program_id(2)
  block = steps.tiles.block(pl.program_id(0), n)
  dkv, dz = ins.dkv.at[0], None if ins.dz is None else ins.dz.at[0]

  @pl.when((n == 0) & (which == 0))
  def _():
    if outs.bias is not None:
      outs.bias[...] = jnp.zeros_like(outs.bias)

  pl.when((block < steps.tiles.blocks) & (which == 0))(
      lambda: steps.keys(ins, outs, block, dkv, dz))

  @pl.when((block < steps.tiles.blocks) & (which == 1))
  def _():
    steps.values(ins, outs, block, dkv)
