"""Checks and calls of the Mosaic-GPU kernels for Hopper."""

import dataclasses
import functools
import inspect
import math
import types
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from lra.kernels import dispatch
from lra.kernels.hopper import TILE

WIDTHS = (64, 128)
SM_COUNT = 132  # streaming multiprocessors of an H200


def supported(shape, dtype):
  if shape[-1] not in WIDTHS:
    raise NotImplementedError('pallas_gpu supports head widths Dh (last '
                              f'dimension of q, k, v) in {WIDTHS}, got '
                              f'{shape[-1]}')
  if jnp.dtype(dtype) != jnp.bfloat16:
    raise NotImplementedError('pallas_gpu supports bfloat16 q, k, v, got '
                              f'{jnp.dtype(dtype)}')
  if dispatch.interpret_params() is not None:
    if not hasattr(plgpu, 'InterpretGPUParams'):
      raise NotImplementedError(f'the GPU interpreter of jax {jax.__version__} '
                                'cannot run pallas_gpu (transposed operands of '
                                'wgmma): use jax 0.11 or later')
  elif dispatch.target_is_local():
    capability = getattr(dispatch.local_gpu(), 'compute_capability', '')
    if capability != '9.0':
      raise NotImplementedError('pallas_gpu needs a device of compute '
                                'capability 9.0 (Hopper), got '
                                f'{capability or jax.default_backend()}')


def sm_count():
  device = dispatch.local_gpu() if dispatch.target_is_local() else None
  return getattr(device, 'core_count', SM_COUNT)


def chunk_count(length):
  return -(-length // TILE)


def splits(pairs, chunks, per_sm):
  """Returns the number of parts of L with which blocks fill the SMs.

  It is the least number that uses the SMs at least 95% as well as the best one.
  An SM runs `per_sm` blocks of the `pairs` = B * H at once.
  """
  slots = sm_count() * per_sm

  def use(parts):
    blocks = pairs * parts
    per = -(-chunks // parts)
    return blocks / (-(-blocks // slots) * slots) * chunks / (per * parts)

  most = max(1, min(chunks // 4, 2 * -(-slots // pairs)))
  best = max(use(parts) for parts in range(1, most + 1))
  parts = next(p for p in range(1, most + 1) if use(p) >= 0.95 * best)
  per = -(-chunks // parts)
  return -(-chunks // per)


def mask_rows(mask_BxL):
  """Returns the mask as float32 [B, chunks * 64], 0 beyond the end, or None."""
  if mask_BxL is None:
    return None
  length = mask_BxL.shape[1]
  pad = chunk_count(length) * TILE - length
  return jnp.pad(mask_BxL.astype(jnp.float32), ((0, 0), (0, pad)))


@dataclasses.dataclass(frozen=True)
class Heads:
  """Heads `first` to `first + count - 1` of an array [B, L, any, Dh]."""
  array: Any
  first: int
  count: int

  @property
  def shape(self):
    b, length, _, d = self.array.shape
    return b, length, self.count, d

  @property
  def dtype(self):
    return self.array.dtype


def whole(x):
  return x.array if isinstance(x, Heads) else x


def operands(inputs):
  if not inputs.packed:
    return inputs.arrays
  return _thirds(_joined(inputs.arrays[0]), inputs.shape[2])


def gradients_like(inputs):
  like = functools.partial(dispatch.like, inputs.arrays[0], dtype=inputs.dtype)
  if not inputs.packed:
    return tuple(like(inputs.shape) for _ in range(3))
  b, length, h, d = inputs.shape
  return _thirds(like((b, length, 3 * h, d)), h)


def gradients(inputs, grads, bias, dstate):
  if inputs.packed:
    grads = (grads[0].reshape(inputs.arrays[0].shape),)
  return inputs.gradients(grads, bias, dstate)


def _joined(qkv_BxLx3xHxD):
  b, length, _, h, d = qkv_BxLx3xHxD.shape
  return qkv_BxLx3xHxD.reshape(b, length, 3 * h, d)


def _thirds(x, h):
  return tuple(Heads(x, i * h, h) for i in range(3))


def call(name, kernel, ins, outs, *, blocks, scratch, warpgroups, interpret,
         products):
  """Runs a kernel; returns name -> array or None, for every output.

  Args:
    name: name shown in profilers.
    kernel: function of three namespaces of references: inputs, outputs (None
      if absent) and scratch.
    ins: name -> array, or `Heads` of one, or None.
    outs: name -> jax.ShapeDtypeStruct, or `Heads` of one, or None. An array in
      place of the jax.ShapeDtypeStruct is updated in place.
    blocks: (B, H, parts); one block runs for each (b, h, part).
    scratch: name -> scratch type, or None.
    warpgroups: number of warpgroups per block.
    interpret: None to compile, else the interpreter's parameters.
    products: number of multiplications of the first input, [B, L, H, Dh], by
      matrices [Dh, Dh] that take as many FLOPs as the kernel.
  """
  arrays, sources = _distinct(ins)
  results, targets = _distinct(outs)
  fresh = [isinstance(x, jax.ShapeDtypeStruct) for x in results]
  order = sorted(range(len(results)), key=lambda i: fresh[i])
  targets = {n: order.index(place) for n, place in targets.items()}
  old = [x for x, is_fresh in zip(results, fresh, strict=True) if not is_fresh]
  new = [x for x, is_fresh in zip(results, fresh, strict=True) if is_fresh]

  def body(*refs, **scratch_refs):
    sent = refs[len(arrays) :]
    kernel(types.SimpleNamespace(
               **{n: _seen(x, refs, sources.get(n)) for n, x in ins.items()}),
           types.SimpleNamespace(
               **{n: _seen(x, sent, targets.get(n)) for n, x in outs.items()}),
           types.SimpleNamespace(**{n: scratch_refs.get(n) for n in scratch}))

  b, h, parts = blocks
  body.__name__ = name
  # No automatic barriers: `Tools.publish` has all that stores need. No scratch
  # memory for reductions: warpgroups would race on it.
  compiler_params = plgpu.CompilerParams(
      lowering_semantics=plgpu.LoweringSemantics.Warpgroup, approx_math=True,
      unsafe_no_auto_barriers=True, reduction_scratch_bytes=0)
  run = functools.partial(
      _in_place if old else _run, body, new,
      {n: x for n, x in scratch.items() if x is not None},
      {'grid': (parts, b * h), 'grid_names': ('part', 'bh'),
       'num_threads': warpgroups, 'thread_name': 'wg'},
      {'interpret': interpret, 'compiler_params': compiler_params,
       **_cost(ins, outs, products)})
  results = run(arrays, old)
  return {n: None if x is None else results[targets[n]]
          for n, x in outs.items()}


def _distinct(named):
  arrays, places = [], {}
  for name, x in named.items():
    if x is None:
      continue
    same = [i for i, y in enumerate(arrays) if y is whole(x)]
    if not same or not isinstance(x, Heads):
      same = [len(arrays)]
      arrays.append(whole(x))
    places[name] = same[0]
  return arrays, places


def _seen(x, refs, place):
  if x is None:
    return None
  if isinstance(x, Heads):
    return refs[place].at[:, :, pl.ds(x.first, x.count)]
  return refs[place]


def _run(body, new, scratch, mesh, params, arrays, old):
  del old  # empty
  run = plgpu.kernel(body, out_type=new, scratch_types=scratch, **mesh,
                     **params)
  return run(*arrays)


def _in_place(body, new, scratch, mesh, params, arrays, old):
  """Returns the results [*old, *new] of a kernel that updates `old`.

  plgpu.kernel takes no mutable arrays, so this allocates scratch memory and
  defines a rule for vmap, as plgpu.kernel does itself.
  """
  def with_scratch(*refs):
    allocated = functools.partial(body, *refs)
    pl.run_scoped(allocated, **scratch, collective_axes=mesh['thread_name'])

  run = pl.kernel(with_scratch, out_type=new, mesh=plgpu.Mesh(**mesh),
                  name=body.__name__, **params)

  @jax.custom_batching.sequential_vmap
  def update(arrays, old):
    def stateful(refs):
      results = run(*arrays, *refs[: len(old)])
      for ref, x in zip(refs[len(old) :], results, strict=True):
        ref[...] = x

    first = [jnp.zeros(x.shape, x.dtype) for x in new]
    return pl.run_state(stateful)([*old, *first])

  return update(arrays, old)


def _cost(ins, outs, products):
  if 'cost_estimate' not in inspect.signature(plgpu.kernel).parameters:
    return {}
  moved = [x for x in (*ins.values(), *outs.values()) if x is not None]
  x = moved[0]
  cost = pl.CostEstimate(
      flops=round(2 * products * math.prod(x.shape) * x.shape[-1]),
      bytes_accessed=sum(math.prod(x.shape) * x.dtype.itemsize for x in moved),
      transcendentals=0)
  return {'cost_estimate': cost}
