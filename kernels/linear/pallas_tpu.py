"""Linear attention for TPU, forward.

The grid is (B, head groups, 2 sweeps, blocks of rows). Sweep 0 sums
S = phi(k)^T v and z = sum phi(k) on chip, sweep 1 writes the outputs. An
operand that a sweep does not use stays on one block, so only 4 tensors are read
or written. With a single sequence and group of heads, a chip with two cores
runs a kernel for each sweep.
"""

import functools

import jax.numpy as jnp
from jax.experimental import pallas as pl

from lra.kernels import dispatch, tpu
from lra.kernels.linear.features import check_value_width
from lra.kernels.linear.pallas_tpu_backward import backward
from lra.kernels.linear.pallas_tpu_steps import (
  call,
  operands,
  pair,
  plan,
  unpaired,
)

__all__ = ['backward', 'forward', 'supported']


def supported(shape, dtype, value_width=None, state=False):
  check_value_width(shape, value_width)
  tpu.supported(shape, dtype)
  tpu.check_memory(tpu.tiling(shape, dtype), dtype, state=state)


def forward(inputs, options, save):
  """Returns (out, final state, sums); packed inputs are read in place.

  The final state is None unless `options.return_state`. The sums are (S, z) for
  the backward pass, or None unless `save`.
  """
  steps = plan(inputs, options)
  run = _halves if steps.tiles.parts > 1 else _sweeps
  out, sums, kv, z = run(steps, inputs, save)
  return (out.reshape(inputs.shape),
          unpaired(sums, z, options) if options.return_state else None,
          (kv, z) if save else None)


def _sweeps(steps, inputs, save):
  """Computes both sweeps in one kernel.

  Returns (out, S, S in the dtype of q, z); None for results not needed.
  """
  tiles, options, dtype = steps.tiles, steps.options, steps.dtype
  last = tiles.blocks - 1
  like = functools.partial(dispatch.like, inputs.arrays[0])
  b, length, h, d = inputs.shape
  both = lambda b, g, s, n: (b, g, n)
  state = lambda x, rows=None: (tiles.state(both, rows), x)
  first = lambda b, g, s, n: (b, g, n * (1 - s) + last * s)
  second = lambda b, g, s, n: (b, g, n * s)
  kv, z = pair(inputs.state, options)
  ins = {**operands(steps, inputs, second, first, first, both),
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


def _halves(steps, inputs, save):
  """Computes `_sweeps` for one sequence, by one kernel for each sweep."""
  del save  # all results exist anyway
  tiles, dtype = steps.tiles, steps.dtype
  q, k, v = tpu.columns(inputs, tiles)
  like = functools.partial(dispatch.like, q[0])
  _, length, h, d = inputs.shape
  mask = tiles.tokens(tiles.half), tpu.mask_rows(inputs.mask)
  part = lambda p, n: (p, 0, n)
  total = lambda p, n: (0, 0, n)
  normalize = steps.options.normalize
  outs = call(
      steps, _sums_kernel,
      {'k': (tiles.tile(tiles.half, k[1]), k[0]),
       'v': (tiles.tile(tiles.half, v[1]), v[0]), 'mask': mask},
      {'kv': (tiles.state(part), like((tiles.parts, h, d, d), jnp.float32)),
       'z': (tiles.state(part, 1),
             like((tiles.parts, h, 1, d), jnp.float32) if normalize else None)},
      grid=(tiles.parts, tiles.steps), semantics=('parallel', 'arbitrary'),
      products=1)
  sums, z = tpu.added(outs['kv'], outs['z'], pair(inputs.state, steps.options))
  kv = sums.astype(dtype)
  outs = call(steps, _outputs_kernel,
              {'q': (tiles.tile(tiles.half, q[1]), q[0]), 'mask': mask,
               'kv': (tiles.state(total), kv), 'z': (tiles.state(total, 1), z)},
              {'o': (tiles.tile(tiles.half), like((1, length, h * d), dtype))},
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
