"""The kernels in Triton, for every NVIDIA GPU since Ampere: what runs where.

`kernels.triton_blocks` has what their bodies share. Jax calls this backend of
Pallas deprecated since 0.12: where it is gone, importing this file fails, and
`dispatch` says so and takes plain XLA.
"""

import types

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels import dispatch

WIDTHS = range(16, 257)
CAPABILITY = 8.0  # Ampere: bfloat16 and TF32 tensor cores, asynchronous copies
LEAST = 256  # rows in a part
CORES = 108  # of an A100, for programs whose device is not known


def supported(shape, dtype, interpret, local):
  """Raises NotImplementedError for what the Triton kernels cannot take.

  Args:
    shape, dtype: of q.
    interpret: what the interpreter is given, or None.
    local: False when the program is for a device that is not here.
  """
  del dtype  # both that the operations accept
  if shape[-1] not in WIDTHS:
    raise NotImplementedError(
      f'pallas_triton supports head widths Dh (last dimension of q, k, v) '
      f'from {WIDTHS[0]} to {WIDTHS[-1]}, got {shape[-1]}'
    )
  check_device(interpret, local)


def check_device(interpret, local):
  """Raises NotImplementedError for a device that is too old."""
  if interpret is None and local:
    _check_device()


def _check_device():
  device = _local_gpu()
  capability = getattr(device, 'compute_capability', None)
  try:
    good = float(capability) >= CAPABILITY
  except (TypeError, ValueError):
    good = False
  if not good:
    raise NotImplementedError(
      f'pallas_triton needs an NVIDIA device of compute capability '
      f'{CAPABILITY} or above, got {capability or jax.default_backend()}'
    )


def _local_gpu():
  for device in jax.local_devices():
    if device.platform in ('gpu', 'cuda'):
      return device
  return None


def cores():
  """Streaming multiprocessors of the device that programs are made for.

  Of the mesh's abstract device, where programs for another card are compiled;
  of the local one; else `CORES`.
  """
  abstract = jax.sharding.get_abstract_mesh().abstract_device
  count = getattr(abstract, 'num_cores', None)
  if count is None and dispatch.target_is_local():
    count = getattr(_local_gpu(), 'core_count', None)
  return count or CORES


def cut(length, pairs, rows, per_core):
  """Into how many parts to cut L, so that the programs fill the device.

  The fewest parts within 5% of the best use of the multiprocessors, and none
  so short that its float32 state outweighs its rows.

  Args:
    length: L.
    pairs: programs per part.
    rows: of a block.
    per_core: programs that one multiprocessor runs at once.

  Returns:
    (parts, blocks per part); no part is empty, the last may be shorter.
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
  """[B, L, H, Dh] or [B, L, 3, H, Dh] -> [B L, H Dh] or [B L, 3 H Dh]."""
  return None if x is None else x.reshape(x.shape[0] * x.shape[1], -1)


def rows(x):
  """[..., D] -> [N, D]."""
  return x.reshape(-1, x.shape[-1])


def qkv(inputs):
  """The arrays of q, k and v in two dimensions: one three times if packed."""
  arrays = tuple(map(flat, inputs.arrays))
  return arrays * 3 if inputs.packed else arrays


def call(name, kernel, ins, outs, *, grid, warps, stages, interpret, alias=()):
  """Runs a kernel whose operands and results may be absent.

  Args:
    name: for profilers.
    kernel: called with two namespaces of references: inputs and outputs (None
      for what is absent).
    ins, outs: name -> array, name -> jax.ShapeDtypeStruct; or None.
    grid: sizes of up to three axes; programs that differ in the first one
      alone run next to each other.
    warps: of a program.
    stages: of the loops that load what they multiply.
    interpret: None to compile.
    alias: (name of an input, name of the output that takes its place) or ().

  Returns:
    name -> array or None, for every output.
  """
  in_names = [n for n, x in ins.items() if x is not None]
  out_names = [n for n, x in outs.items() if x is not None]

  def body(*refs):
    found = dict(zip(in_names + out_names, refs, strict=True))
    # An input that gives its place away has the name of no other.
    kernel(
      types.SimpleNamespace(**{n: found.get(n) for n in ins}),
      types.SimpleNamespace(**{n: found.get(n) for n in outs}),
    )

  body.__name__ = name
  aliases = {}
  if alias:
    aliases = {in_names.index(alias[0]): out_names.index(alias[1])}
  results = pl.pallas_call(
    body,
    out_shape=[outs[n] for n in out_names],
    grid=grid,
    compiler_params=plt.CompilerParams(num_warps=warps, num_stages=stages),
    input_output_aliases=aliases,
    interpret=interpret is not None,
    name=name,
  )(*(ins[n] for n in in_names))
  found = dict(zip(out_names, results, strict=True))
  return {n: found.get(n) for n in outs}
