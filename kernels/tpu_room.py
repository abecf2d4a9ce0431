"""Checks before compilation whether a TPU kernel fits into on-chip memory."""

import jax.numpy as jnp

from kernels.tpu_call import MAX_VMEM, padded

# Memory for everything else: masks, normalisers, biases.
SPARE = 4 * 1024 * 1024
# Tensors of a backward pass: q, k, v, do, dq, dk, dv.
TENSORS = 7


def check(tiles, dtype, *, scratch=(), state=False, states=1):
  """Raises NotImplementedError if the larger pass needs too much memory.

  Blocks that are streamed exist twice, in use and in transfer. Values that
  spill from registers were measured after compilation: less than two states of
  a head. In float32, whose matmuls take several passes, they are less than
  three states of each head.

  Args:
    tiles: `kernels.tpu.Tiling`.
    dtype: dtype of q, k and v, and of the states between the passes.
    scratch: shapes of float32 scratch memory besides states.
    state: whether the call takes or returns a state.
    states: number of float32 states of a block of heads in scratch memory.
  """
  itemsize = jnp.dtype(dtype).itemsize
  square = tiles.width, tiles.width
  moved = TENSORS * padded((tiles.rows, tiles.lanes), itemsize)
  moved += tiles.heads * padded(square, itemsize)
  if state or tiles.parts > 1:
    moved += 2 * tiles.heads * padded(square, 4)
  values = 3 * tiles.heads if itemsize == 4 else 2
  kept = (states * tiles.heads + values) * padded(square, 4)
  kept += sum(padded(shape, 4) for shape in scratch)
  needed = kept + 2 * moved + SPARE
  if needed > MAX_VMEM:
    raise NotImplementedError(
        f'pallas_tpu keeps states and blocks of {tiles.heads} heads of width '
        f'Dh = {tiles.width} on chip, in at most {MAX_VMEM >> 20} MiB of '
        f'memory; those of {jnp.dtype(dtype).name} q, k, '
        f'v{" and a state" * state} take {needed >> 20} MiB')
