"""Linear attention for TPU.

Forward, the grid is (B, head groups, 2 sweeps, blocks of rows). Sweep 0 sums
S = phi(k)^T v and z = sum phi(k) on chip, sweep 1 writes the outputs. An
operand that a sweep does not use stays on one block.

Backward, the grid is (B, head groups, 3 * blocks of rows). The first third
reads q and the gradient of the output, writes dq and sums dS and dz. Then two
steps per block read k and v and write dk and dv, one tile each, also if one
array packs all gradients. If packed inputs have an H * Dh that is no multiple
of 128, blocks are whole rows: dq is written together with dk and dv.

With a single sequence and group of heads, a chip with two cores runs a kernel
for each sweep, and the cores share the blocks of rows.
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
  run = _halves if steps.tiles.parts > 1 else _sweeps
  out, sums, kv, z = run(steps, inputs, save)
  final = unpaired(sums, z, options) if options.return_state else None
  return (out.reshape(inputs.shape), final), (kv, z) if save else None


def backward(inputs, saved, cotangents, options):
  do, dfinal = cotangents
  steps = plan(inputs, options)
  run = _backward_halves if steps.tiles.parts > 1 else _backward_sweeps
  outs, dkv, dz = run(steps, inputs, saved, do, pair(dfinal, options))
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
          'bias': tpu.bias_sums(inputs, tiles, both, b)}

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

  pl.when(t == 0)(lambda: _start(steps, outs, dkv, dz))
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


def _start(steps, outs, dkv, dz):
  steps.start((dkv, dz), (None, None))
  _clear_bias(outs)


def _clear_bias(outs):
  if outs.bias is not None:
    outs.bias[...] = jnp.zeros_like(outs.bias)


# Kernels of one sweep each. Grids are (parts, steps, ...); `part` and `total`
# map a point to the sums of its part, or to those of the whole sequence.


def _part(p, n, *_):
  return p, 0, n


def _total(p, n, *_):
  return 0, 0, n


def _halves(steps, inputs, save):
  del save  # all results exist anyway
  tiles, dtype = steps.tiles, steps.dtype
  at = tiles.half
  operands = steps.operands(inputs, at, q=at, k=at, v=at)
  like = functools.partial(dispatch.like, operands['q'][1])
  _, length, h, d = inputs.shape
  mask = tiles.tokens(at), tpu.mask_rows(inputs.mask)
  normalize = steps.options.normalize
  outs = call(
      steps, _sums_kernel,
      {'k': operands['k'], 'v': operands['v'], 'mask': mask},
      {'kv': (tiles.state(_part), like((tiles.parts, h, d, d), jnp.float32)),
       'z': (tiles.state(_part, 1),
             like((tiles.parts, h, 1, d), jnp.float32) if normalize else None)},
      grid=(tiles.parts, tiles.steps), semantics=('parallel', 'arbitrary'),
      products=1)
  sums, z = tpu.added(outs['kv'], outs['z'], pair(inputs.state, steps.options))
  kv = sums.astype(dtype)
  outs = call(steps, _outputs_kernel,
              {'q': operands['q'], 'mask': mask,
               'kv': (tiles.state(_total), kv),
               'z': (tiles.state(_total, 1), z)},
              {'o': (tiles.tile(at), like((1, length, h * d), dtype))},
              grid=(tiles.parts, tiles.steps),
              semantics=('parallel', 'arbitrary'), products=1)
  return outs['o'], sums, kv, z


def _sums_kernel(ins, outs, kv, z, *, steps):
  block = steps.tiles.block(pl.program_id(0), pl.program_id(1))

  pl.when(pl.program_id(1) == 0)(lambda: steps.start((kv, z), (None, None)))
  pl.when(block < steps.tiles.blocks)(lambda: steps.sums(ins, block, kv, z))

  outs.kv[0] = kv[...]
  if outs.z is not None:
    outs.z[0] = z[...]


def _outputs_kernel(ins, outs, kv, z, *, steps):
  del kv, z  # scratch memory
  block = steps.tiles.block(pl.program_id(0), pl.program_id(1))

  @pl.when(block < steps.tiles.blocks)
  def _():
    z = None if ins.z is None else ins.z.at[0]
    steps.outputs(ins, outs, block, ins.kv.at[0], z)


def _backward_halves(steps, inputs, saved, do, dfinal):
  tiles, options = steps.tiles, steps.options
  at = tiles.half
  _, _, h, d = inputs.shape
  operands = steps.operands(inputs, at, q=at, k=at, v=at)
  like = functools.partial(dispatch.like, operands['q'][1])
  mask = tiles.tokens(at), tpu.mask_rows(inputs.mask)
  bias = tpu.bias_sums(inputs, tiles, _part, tiles.parts)
  # The simulator cannot update an array whose last block is ragged.
  packed = tpu.by_columns(inputs, tiles) and not tiles.ragged
  columns = 3 * h * d if packed else h * d
  grad = like((1, tiles.length, columns), steps.dtype)
  outs = call(
      steps, _queries_kernel,
      {'q': operands['q'], 'do': (tiles.tile(at), tpu.flat(do)), 'mask': mask,
       'kv': (tiles.state(_total), saved[0]),
       'z': (tiles.state(_total, 1), saved[1])},
      {'dq dk dv' if packed else 'dq': (tiles.tile(at), grad),
       'dkv': (tiles.state(_part), like((tiles.parts, h, d, d), jnp.float32)),
       'dz': (tiles.state(_part, 1), like((tiles.parts, h, 1, d), jnp.float32)
                                     if options.normalize else None),
       'bias': bias},
      grid=(tiles.parts, tiles.steps), semantics=('parallel', 'arbitrary'),
      products=3)
  dkv, dz = tpu.added(*(x if x is None else x * options.scale
                        for x in (outs['dkv'], outs['dz'])), dfinal)
  ins = {'k': operands['k'], 'v': operands['v'], 'mask': mask,
         'dkv': (tiles.state(_total), dkv), 'dz': (tiles.state(_total, 1), dz)}
  more = {'bias': bias}
  if packed:
    def column(p, n, which):
      # Steps beyond the last block stay on dv, which is written last.
      is_block = tiles.block(p, n) < tiles.blocks
      return 0, jnp.where(is_block, 1 + which, 2), at(p, n)[2]

    # The result updates the array that contains dq.
    ins['grads'] = pl.BlockSpec(memory_space=pl.ANY), outs['dq dk dv']
    more['dq dk dv'] = tiles.tile(column), grad
  else:
    more['dk'] = more['dv'] = tiles.tile(at), grad
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

  pl.when(pl.program_id(1) == 0)(lambda: _start(steps, outs, dkv, dz))
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

  pl.when((n == 0) & (which == 0))(lambda: _clear_bias(outs))
  pl.when((block < steps.tiles.blocks) & (which == 0))(
      lambda: steps.keys(ins, outs, block, dkv, dz))
  pl.when((block < steps.tiles.blocks) & (which == 1))(
      lambda: steps.values(ins, outs, block, dkv))
