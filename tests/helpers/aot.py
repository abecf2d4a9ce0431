"""Compiles for absent accelerators: TPUs with `libtpu`, an H200 with CUDA."""

import contextlib
import functools
import importlib.util
import os

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.experimental.layout import Format, Layout

from lra.kernels import chunks, dispatch, tpu
from lra.kernels.linear.operands import Inputs, Options
from tests.helpers import cuda
from tools import h200

TPU = {'v5e': 'v5e:1x1', 'v5p': 'v5p:2x2x1', 'v6e': 'v6e:1x1',
       'tpu7x': 'tpu7x:2x2x1'}
TARGETS = (*TPU, 'h200')
PASSES = ('forward', 'backward')
# XLA's options. On a GPU, matmuls go to cuBLASLt, which adds the bias when it
# writes the result. Without a device to time on, XLA would take its Triton
# matmuls, which need another pass over the result for the bias.
OPTIONS = {'tpu': {}, 'gpu': {'xla_gpu_enable_triton_gemm': False}}


class Unavailable(RuntimeError):
  """The compiler for a target is not installed; the message names it."""


def available(targets):
  """Returns the targets to compile for, and a line about each other one."""
  found, skipped = [], []
  for target in targets:
    try:
      device(target)
      found.append(target)
    except Unavailable as reason:
      skipped.append(f'{target} skipped: {reason}')
  return found, skipped


@functools.cache
def device(target):
  """Returns a description of one device of a target, or raises Unavailable."""
  if target == 'h200':
    try:
      return h200.device()
    except RuntimeError as error:
      raise Unavailable(str(error)) from error
  if importlib.util.find_spec('libtpu') is None:
    raise Unavailable('the package libtpu is not installed')
  # Nothing here uses a TPU, so libtpu must neither search for one nor lock it.
  os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
  os.environ.setdefault('TPU_ACCELERATOR_TYPE', 'v5litepod-1')
  os.environ.setdefault('TPU_WORKER_HOSTNAMES', 'localhost')
  os.environ.setdefault('ALLOW_MULTIPLE_LIBTPU_LOAD', '1')
  try:
    topology = topologies.get_topology_desc(topology_name=TPU[target],
                                            platform='tpu')
  except Exception as error:  # JAX raises several kinds
    raise Unavailable(f'libtpu has no {target}: {error}') from error
  return topology.devices[0]


def lowering(target):
  """Returns a context in which programs are lowered for a target."""
  if target != 'h200':
    return contextlib.nullcontext()
  return cuda.CARDS[target].lowering()


def platform(target):
  """Returns 'tpu' or 'gpu'."""
  return 'tpu' if target in TPU else 'gpu'


def own_kernel(target):
  """Returns the name of the Pallas kernel for a target."""
  return f'pallas_{platform(target)}'


def compiled(op, kernel, direction, target, shape, dtype, mask=True):
  """Returns the compiled forward or backward program of one kernel.

  Operands and results are row-major [B, L, H * Dh], as projections write and
  read them; `shape` is (B, L, H, Dh). The forward program is that of inference;
  the backward program takes the values that a forward pass in training saves.
  """
  place = jax.sharding.SingleDeviceSharding(device(target))

  def row_major(x):
    return Format(Layout(tuple(range(x.ndim))), place)

  with dispatch.target(platform(target)):
    function, arrays = _program(op, kernel, direction, shape, mask)
    arrays = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=row_major(x)),
        arrays(dtype))
    results = jax.tree.map(row_major, jax.eval_shape(function, *arrays))
    return jax.jit(function, out_shardings=results).lower(*arrays).compile()


def _flat(shape):
  return (*shape[:2], shape[2] * shape[3])


def _program(op, kernel, direction, shape, has_mask):
  """Returns (program, function from a dtype to the arguments' descriptions)."""
  module = dispatch.backend(op, kernel)
  options = _options(op, shape)
  heads = functools.partial(jnp.reshape, shape=shape)

  def inputs(q, k, v, mask):
    slopes = chunks.default_slopes(shape[2]) if op == 'lightning' else None
    return Inputs(tuple(map(heads, (q, k, v))), mask=mask, slopes=slopes)

  def forward(q, k, v, mask, save=False):
    (out, _), saved = module.forward(inputs(q, k, v, mask), options, save)
    return tpu.flat(out), saved

  def backward(q, k, v, mask, saved, do):
    grads = module.backward(inputs(q, k, v, mask), saved, (heads(do), None),
                            options)
    return [tpu.flat(x) for x in grads.arrays]

  def arrays(dtype):
    x = jax.ShapeDtypeStruct(_flat(shape), dtype)
    mask = jax.ShapeDtypeStruct(shape[:2], bool) if has_mask else None
    if direction == 'forward':
      return x, x, x, mask
    save = functools.partial(forward, save=True)
    saved = jax.eval_shape(save, x, x, x, mask)[1]
    return x, x, x, mask, saved, x

  function = backward if direction == 'backward' else (
      lambda *args: forward(*args)[0])
  return function, arrays


def _options(op, shape):
  if op == 'simpletron':
    return Options('identity', normalize=False, scale=shape[1] ** -0.5)
  return Options()
