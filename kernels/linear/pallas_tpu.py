"""Linear attention for TPU.

Forward, the grid is (B, head groups, 2 sweeps, blocks of rows). Sweep 0 sums
S = phi(k)^T v and z = sum phi(k) on chip, sweep 1 writes the outputs. An
operand that a sweep does not use stays on one block.

Backward, the grid is (B, head groups, 3 * blocks of rows). The first third
reads q and the gradient of the output, writes dq and sums dS and dz. Then two
steps per block read k and v and write dk and dv, one tile each, also if one
array packs all gradients. If packed inputs have an H * Dh that is no multiple
of 128, blocks are whole rows: dq is written together with dk and dv.
"""

import functools

import jax.numpy as jnp
from jax.experimental import pallas as pl

from lra.kernels import dispatch, tpu
from lra.kernels.linear.operands import check_value_width
from lra.kernels.linear.pallas_tpu_steps import call, pair, plan, unpaired


def supported(shape, dtype, value_width=None, state=False):
  check_value_width(shape, value_width)
  tpu.supported(shape, dtype)
  tpu.check_memory(tpu.tiling(shape, dtype), dtype, state=state)


def forward(inputs, options, save):
  steps = plan(inputs, options)
  out, sums, kv, z = _sweeps(steps, inputs, save)
  final = unpaired(sums, z, options) if options.return_state else None
  return (out.reshape(inputs.shape), final), (kv, z) if save else None


def backward(inputs, saved, cotangents, options):
  do, dfinal = cotangents
  steps = plan(inputs, options)
  outs, dkv, dz = _backward_sweeps(
      steps, inputs, saved, do, pair(dfinal, options))
  dstate = None
  if inputs.state is not None:
    dstate = unpaired(dkv, dz, options)
  return tpu.gradients(inputs, outs, dstate)


def _sweeps(steps, inputs, save):
  """Returns (out, S, S in the dtype of q, z); None for results not needed."""
  tiles, options, dtype = steps.tiles, steps.options, steps.dtype
  last = tiles.blocks - 1
  like = functools.partial(dispatch.like, inputs.arrays[0])
  b, length, h, d = inputs.shape
  both = lambda b, g, s, n: (b, g, n)
  state = lambda x, rows=None: (tiles.state(both, rows), x)
  first = lambda b, g, s, n: (b, g, n * (1 - s) + last * s)
  second = lambda b, g, s, n: (b, g, n * s)
  kv, z = pair(inputs.state, options)
  ins = {**steps.operands(inputs, both, q=second, k=first, v=first),
         'mask': (tiles.tokens(both), tpu.mask_rows(inputs.mask)),
         'kv': state(kv), 'z': state(z, 1)}
  norm = options.normalize and (save or options.return_state)
  sums = like((b, h, d, d), jnp.float32)
  outs = {'o': (tiles.tile(second), like((b, length, h * d), dtype)),
          'sums': state(sums if options.return_state else None),
          'kv': state(like((b, h, d, d), dtype) if save else None),
          'z': state(like((b, h, 1, d), jnp.float32) if norm else None, 1)}
  outs = call(
      steps, _sweeps_kernel, ins, outs, grid=(b, tiles.groups, 2, tiles.blocks),
      semantics=('parallel', 'parallel', 'arbitrary', 'arbitrary'), products=2)
  return outs['o'], outs['sums'], outs['kv'], outs['z']


def _sweeps_kernel(ins, outs, kv, z, *, steps):
  sweep, n = pl.program_id(2), pl.program_id(3)

  pl.when((sweep == 0) & (n == 0))(
      lambda: steps.start((kv, z), (ins.kv, ins.z)))
  pl.when(sweep == 0)(lambda: steps.sums(ins, n, kv, z))
  pl.when(sweep == 1)(lambda: steps.outputs(ins, outs, n, kv, z))

  @pl.when((sweep == 1) & (n == 0))
  def _():
    for out, ref in ((outs.sums, kv), (outs.kv, kv), (outs.z, z)):
      if out is not None:
        out[0] = ref[...].astype(out.dtype)


def _backward_sweeps(steps, inputs, saved, do, dfinal):
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
  ins = {**steps.operands(inputs, both, q=queries, k=keys, v=values),
         'do': (tiles.tile(both if steps.packed else queries), tpu.flat(do)),
         'mask': (tiles.tokens(both), tpu.mask_rows(inputs.mask)),
         'kv': state(saved[0]), 'z': state(saved[1], 1),
         'dkv': state(dfinal[0]), 'dz': state(dfinal[1], 1)}
  kv = z = None
  if inputs.state is not None:
    kv = like((b, h, d, d), jnp.float32)
    z = like((b, h, 1, d), jnp.float32) if steps.options.normalize else None
  outs = {'dkv': state(kv), 'dz': state(z, 1),
          'bias': tpu.bias_sums(inputs, tiles, both)}

  def column(b, g, t):
    which = jnp.where(t < blocks, 0, 1 + _which(t, blocks))
    return b, which * tiles.groups + g, both(b, g, t)[2]

  if inputs.packed:
    where = tiles.row(keys) if steps.packed else tiles.tile(column)
    outs['dq dk dv'] = where, like((b, length, 3 * h * d), steps.dtype)
  else:
    for name, where in (('dq', queries), ('dk', keys), ('dv', keys)):
      outs[name] = tiles.tile(where), like((b, length, h * d), steps.dtype)
  outs = call(steps, _backward_sweeps_kernel, ins, outs,
              grid=(b, tiles.groups, 3 * blocks),
              semantics=('parallel', 'parallel', 'arbitrary'), products=5)
  return outs, outs['dkv'], outs['dz']


def _block(t, blocks):
  """Returns the block of step t of the second sweep: two steps per block."""
  return jnp.maximum(t - blocks, 0) >> 1


def _which(t, blocks):
  """Returns 0 at a step that writes dk, 1 at one that writes dv."""
  return (t - blocks) & 1


def _backward_sweeps_kernel(ins, outs, dkv, dz, *, steps):
  t, blocks = pl.program_id(2), steps.tiles.blocks
  block, which = _block(t, blocks), _which(t, blocks)

  @pl.when(t == 0)
  def _():
    steps.start((dkv, dz), (None, None))
    if outs.bias is not None:
      outs.bias[...] = jnp.zeros_like(outs.bias)

  pl.when(t < blocks)(
      lambda: steps.queries(ins, outs, t, (dkv, dz), store=not steps.packed))

  @pl.when(t == blocks)
  def _():
    steps.finish((dkv, dz), (ins.dkv, ins.dz))
    for out, ref in ((outs.dkv, dkv), (outs.dz, dz)):
      if out is not None:
        out[0] = ref[...]

  @pl.when((t >= blocks) & (which == 0))
  def _():
    if steps.packed:
      steps.queries(ins, outs, block, None)
    steps.keys(ins, outs, block, dkv, dz)

  pl.when((t >= blocks) & (which == 1))(
      lambda: steps.values(ins, outs, block, dkv))
