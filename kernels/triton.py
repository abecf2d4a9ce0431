"""Checks and calls of the Triton kernels, for NVIDIA GPUs since Ampere.

`kernels.triton_blocks` has the building blocks of their bodies. JAX has
deprecated this backend of Pallas since 0.12. Once it is removed, importing this
file fails, and `dispatch` reports this and takes plain XLA.
"""

import types

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels import checks, dispatch
from kernels.dispatch import local_gpu as _local_gpu

WIDTHS = range(16, 257)
CAPABILITY = 8.0  # Ampere: bfloat16 and TF32 tensor cores, asynchronous copies
LEAST = 256  # minimum number of rows in a part
CORES = 108  # multiprocessors of an A100, if the device is unknown


def supported(shape):
  """Raises NotImplementedError for q of a shape that kernels cannot take."""
  if shape[-1] not in WIDTHS:
    raise NotImplementedError('pallas_triton supports head widths Dh (last '
                              f'dimension of q, k, v) from {WIDTHS[0]} to '
                              f'{WIDTHS[-1]}, got {shape[-1]}')
  check()


def check(*dtypes):
  """Raises NotImplementedError for an odd dtype or a device that is too old."""
  for dtype in dtypes:
    if jnp.dtype(dtype).name not in checks.DTYPES:
      raise NotImplementedError(f'pallas_triton supports no {dtype}')
  if dispatch.interpret_params() is None and dispatch.target_is_local():
    _check_device()


def _check_device():
  device = _local_gpu()
  capability = getattr(device, 'compute_capability', None)
  try:
    good = float(capability) >= CAPABILITY
  except (TypeError, ValueError):
    good = False
  if not good:
    raise NotImplementedError('pallas_triton needs an NVIDIA device of compute '
                              f'capability {CAPABILITY} or above, got '
                              f'{capability or jax.default_backend()}')


def cores():
  """Returns the multiprocessors of the device that programs are made for.

  The mesh's abstract device comes first, then the local one, then `CORES`.
  """
  abstract = jax.sharding.get_abstract_mesh().abstract_device
  count = getattr(abstract, 'num_cores', None)
  if count is None and dispatch.target_is_local():
    count = getattr(_local_gpu(), 'core_count', None)
  return count or CORES


def cut(length, pairs, rows, per_core):
  """Returns (parts of L, blocks per part) that make programs fill the device.

  Takes the fewest parts within 5% of the best use of the multiprocessors. A
  part must have enough rows to outweigh its float32 state. No part is empty,
  the last may be shorter.

  Args:
    length, rows: L, and rows of a block.
    pairs: programs per part.
    per_core: programs that run on one multiprocessor at once.
  """
  blocks, slots = -(-length // rows), per_core * cores()

  def use(parts):
    waves = -(-pairs * parts // slots)
    return pairs * blocks / (waves * slots * -(-blocks // parts))

  most = max(1, min(length // LEAST, 2 * -(-slots // pairs)))
  best = max(map(use, range(1, most + 1)))
  parts = next(n for n in range(1, most + 1) if use(n) >= 0.95 * best)
  per_part = -(-blocks // parts)
  return -(-blocks // per_part), per_part


def flat(x):
  """Flattens to [B L, H Dh] or, for packed arrays, [B L, 3 H Dh]."""
  return None if x is None else x.reshape(x.shape[0] * x.shape[1], -1)


def rows(x):
  """Flattens [..., D] to [N, D]."""
  return x.reshape(-1, x.shape[-1])


def qkv(inputs):
  """Returns two-dimensional arrays of q, k, v; thrice one array if packed."""
  arrays = tuple(map(flat, inputs.arrays))
  return arrays * 3 if inputs.packed else arrays


def call(name, kernel, ins, outs, *, grid, warps, stages, interpret, alias=()):
  """Runs a kernel with optional operands and results.

  Args:
    name: name shown in profilers.
    kernel: function of two namespaces of references: inputs and outputs (None
      if absent).
    ins, outs: name -> array, name -> jax.ShapeDtypeStruct; or None.
    grid: sizes of up to three axes; programs that differ only in the first run
      next to each other.
    warps, stages: warps of a program; stages of the loops that load operands.
    interpret: None to compile.
    alias: (name of an input, name of the output that takes its memory) or ().

  Returns:
    name -> array or None, for every output.
  """
  in_names = [n for n, x in ins.items() if x is not None]
  out_names = [n for n, x in outs.items() if x is not None]

  def body(*refs):
    found = dict(zip(in_names + out_names, refs, strict=True))
    # An aliased input has no reference: the output's name refers to it.
    kernel(types.SimpleNamespace(**{n: found.get(n) for n in ins}),
           types.SimpleNamespace(**{n: found.get(n) for n in outs}))

  body.__name__ = name
  aliases = {}
  if alias:
    aliases = {in_names.index(alias[0]): out_names.index(alias[1])}
  results = pl.pallas_call(
      body, out_shape=[outs[n] for n in out_names], grid=grid,
      compiler_params=plt.CompilerParams(num_warps=warps, num_stages=stages),
      input_output_aliases=aliases, interpret=interpret is not None,
      name=name)(*(ins[n] for n in in_names))
  found = dict(zip(out_names, results, strict=True))
  return {n: found.get(n) for n in outs}
