"""Linear attention in Triton: two kernels forward, two backward.

The forward pass reads or writes 4 tensors, the backward pass 7, see
docs/kernels-design.md. If S is too wide for the registers of a program, each
program sums a block of its columns, and a separate kernel computes dS. The
backward pass then reads or writes 9 tensors.
"""

import dataclasses

import jax.numpy as jnp

from lra.kernels import triton
from lra.kernels.linear import pallas_triton_rows as rows
from lra.kernels.linear.operands import check_value_width


def supported(shape, dtype, value_width=None, state=False):
  del dtype, state  # all dtypes, initial and final states are supported
  check_value_width(shape, value_width)
  triton.supported(shape)


def forward(inputs, options, save):
  q, k, v = triton.qkv(inputs)
  call = _Call(inputs, options)
  kv, z = call.sums(k, v, None, ('k', 'v'))
  kv, z = call.totals(kv, z, inputs.state)
  final = None
  if options.return_state:
    final = (kv, z) if options.normalize else kv
  kv = kv.astype(inputs.dtype)
  o = call.outputs(q, kv, z)
  return (o.reshape(inputs.shape), final), (kv, z) if save else None


def backward(inputs, saved, cotangents, options):
  q, k, v = triton.qkv(inputs)
  call = _Call(inputs, options)
  (do, dfinal), (kv, z) = cotangents, saved
  do = triton.flat(do)
  dq, dkv, dz, dq_bias = call.query_gradients(q, do, kv, z)
  if dkv is None:
    dkv, _ = call.sums(q, do, z, ('q', ''))
  dkv, dz = call.totals(dkv, dz, dfinal)
  dstate = (dkv, dz) if options.normalize else dkv
  dk, dv, dkv_bias = call.key_gradients(k, v, dkv.astype(inputs.dtype), dz,
                                        dq if inputs.packed else None)
  dbias = None
  if inputs.bias is not None:
    dbias = jnp.concatenate([dq_bias[None], dkv_bias])
  if inputs.packed:
    grads = (dk.reshape(inputs.arrays[0].shape),)
  else:
    grads = tuple(x.reshape(inputs.shape) for x in (dq, dk, dv))
  return inputs.gradients(grads, dbias, dstate)


@dataclasses.dataclass(frozen=True)
class _Size:
  """Sizes of a program: rows and columns of a block, warps, stages."""
  rows: int
  columns: int
  warps: int
  stages: int


def _size(kernel, width, dtype):
  """Returns a `_Size` that fits the registers and 99 KiB of shared memory."""
  lanes = triton.padded(width)
  if dtype == jnp.float32:
    match lanes:
      case 16 | 32:
        return _Size(64 if kernel == 'outputs' else 32, lanes, 4, 3)
      case 64:
        return _Size(32 if kernel == 'outputs' else 16, lanes, 4, 2)
      case 128:
        return _Size(16 if kernel == 'key_gradients' else 32, 64, 8, 2)
    return _Size(16, 32, 8, 2)
  match lanes:
    case 16 | 32 | 64:
      return _Size(64 if kernel == 'outputs' else 32, lanes, 4, 3)
    case 128:
      if kernel == 'key_gradients':
        return _Size(32, 64, 8, 2)
      return _Size(64 if kernel == 'outputs' else 32, lanes, 8, 3)
  return _Size(32, 64, 8, 3)


class _Call:

  def __init__(self, inputs, options):
    self.inputs, self.options = inputs, options
    self.b, self.length, self.h, self.d = inputs.shape

  def sums(self, x, y, z, names):
    """Returns sums of x^T y and of x (or None) over each part of L."""
    size = _size('sums', self.d, self.inputs.dtype)
    plan, grid = self._plan(size, by_columns=True)
    scale = 1.0
    if z is None and names[0] == 'q':
      scale = self.options.scale
    total = self.options.normalize and z is None
    outs = self._run('sums', rows.sums, plan, grid, size,
                     {'x': x, 'y': y, 'z': z},
                     {'xy': self._states(plan),
                      'total': self._vectors(plan) if total else None},
                     names=names, scale=scale)
    return outs['xy'], outs['total']

  def outputs(self, q, kv, z):
    size = _size('outputs', self.d, self.inputs.dtype)
    plan, grid = self._plan(size, single=True)
    outs = self._run('outputs', rows.outputs, plan, grid, size,
                     {'q': q, 'kv': kv, 'z': z}, {'o': self._rows(1)})
    return outs['o']

  def query_gradients(self, q, do, kv, z):
    """Returns dq, dS (None if computed separately), dz, the sum of dq."""
    size = _size('query_gradients', self.d, self.inputs.dtype)
    plan, grid = self._plan(size)
    whole = plan.shape.column_blocks == 1
    outs = self._run(
        'query_gradients', rows.query_gradients, plan, grid, size,
        {'q': q, 'do': do, 'kv': kv, 'z': z},
        {'dq': self._rows(3 if self.inputs.packed else 1),
         'dkv': self._states(plan) if whole else None,
         'dz': self._vectors(plan) if self.options.normalize else None,
         'dbias': self._vectors(plan) if self.inputs.bias is not None
         else None})
    dbias = outs['dbias']
    if dbias is not None:
      dbias = jnp.sum(dbias, axis=(0, 2))
    return outs['dq'], outs['dkv'], outs['dz'], dbias

  def key_gradients(self, k, v, dkv, dz, taken):
    """Returns dk, dv, and float32 [2, H, Dh] for the bias.

    They are written into `taken`, a packed array that holds dq, if given.
    """
    size = _size('key_gradients', self.d, self.inputs.dtype)
    plan, grid = self._plan(size, single=True)
    apart = taken is None
    outs = self._run('key_gradients', rows.key_gradients, plan, grid, size,
                     {'k': k, 'v': v, 'dkv': dkv, 'dz': dz, 'taken': taken},
                     {'dk': self._rows(1 if apart else 3),
                      'dv': self._rows(1) if apart else None,
                      'dbias': self._vectors(plan, 2)
                      if self.inputs.bias is not None else None},
                     alias=() if apart else ('taken', 'dk'))
    dbias = outs['dbias']
    if dbias is not None:
      dbias = jnp.moveaxis(jnp.sum(dbias, axis=(0, 2)), 1, 0)
    return outs['dk'], outs['dv'], dbias

  def totals(self, kv, z, first):
    pair = first if self.options.normalize else (first, None)
    return tuple(_total(x, before) for x, before in zip(
                     (kv, z), pair or (None,) * 2, strict=True))

  def _plan(self, size, single=False, by_columns=False):
    shape = triton.Shape(*self.inputs.shape, self.inputs.packed, size.rows,
                         size.columns)
    programs = self.h * (shape.column_blocks if by_columns else 1)
    parts, per_part = shape.blocks, 1
    if not single:
      parts, per_part = triton.cut(self.length, self.b * programs, size.rows,
                                   per_core=8 // size.warps)
    tools = triton.Tools(self.options.interpret is not None)
    plan = triton.Plan(shape, parts, per_part, self.options, tools)
    return plan, (programs, parts, self.b)

  def _run(self, name, kernel, plan, grid, size, ins, outs, alias=(), **more):
    return triton.run(name, kernel, plan, self.inputs, ins, outs, grid=grid,
                      warps=size.warps, stages=size.stages, alias=alias, **more)

  def _rows(self, count):
    shape = self.b * self.length, count * self.h * self.d
    return shape, self.inputs.dtype

  def _states(self, plan):
    return (self.b, self.h, plan.parts, self.d, self.d), jnp.float32

  def _vectors(self, plan, *count):
    return (self.b, self.h, plan.parts, *count, self.d), jnp.float32


def _total(x, before):
  """Sums over the parts, axis 2, and adds `before`."""
  if x is None:
    return None
  x = x[:, :, 0] if x.shape[2] == 1 else jnp.sum(x, axis=2)
  return x if before is None else x + before
