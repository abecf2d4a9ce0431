"""Linear attention for Hopper: two kernels forward, two backward.

Forward, one kernel sums S = phi(k)^T v and z = sum phi(k) over parts of the
sequence, the next adds up the parts and writes the outputs. Backward, one
reads q and do, writes dq and sums dS and dz, the next reads k and v and writes
dk and dv: 4 and 7 tensors moved. Cutting L into parts fills the device at any
number of heads.
"""

import dataclasses
import functools

import jax.numpy as jnp

from kernels import dispatch, hopper, hopper_sums
from kernels.linear import pallas_gpu_rows as rows
from kernels.linear.options import check_state, check_value_width

IN_KERNEL_PARTS = 4


def supported(shape, dtype, value_width=None, state=False):
  """Raises NotImplementedError for what `forward` cannot take."""
  check_value_width(shape, value_width)
  check_state(state)
  hopper.supported(
    shape, dtype, dispatch.interpret_params(), dispatch.target_is_local()
  )


def forward(inputs, options, save):
  """(out, final state or None, sums or None); see `kernels.vjp`."""
  (q, k, v), mask = inputs.apart(), inputs.mask
  b, length, h, d = q.shape
  warpgroups = d // hopper.TILE
  parts = _parts(q.shape)
  plan = hopper_sums.Plan(
    length=length,
    warpgroups=warpgroups,
    parts=parts,
    feature_map=options.feature_map,
    normalize=options.normalize,
    interpret=options.interpret,
    stages=_stages(parts, length),
  )
  kv, z = map(_few_parts, hopper_sums.sums(k, v, mask, plan))
  call = _caller(q, mask, options, plan)
  outs = call(
    rows.outputs,
    {'q': q, 'kv': kv, 'z': z},
    {'o': dispatch.like(q, q.shape, q.dtype)},
  )
  return outs['o'], None, (kv, z) if save else None


def backward(inputs, saved, do, dfinal, options):
  """(gradients of q, k, v; None; None)."""
  (q, k, v), mask = inputs.apart(), inputs.mask
  b, length, h, d = q.shape
  kv, z = saved
  parts = _parts(q.shape)
  plan = hopper_sums.Plan(
    length=length,
    warpgroups=d // hopper.TILE,
    parts=parts,
    normalize=options.normalize,
    stages=_stages(parts, length),
  )
  like = functools.partial(dispatch.like, q)
  norm = like((b, h, parts, d), jnp.float32) if options.normalize else None
  call = _caller(q, mask, options, plan)
  outs = call(
    rows.query_gradients,
    {'q': q, 'do': do, 'kv': kv, 'z': z},
    {
      'dq': like(q.shape, q.dtype),
      'dkv': like((b, h, parts, d, d), jnp.float32),
      'dz': norm,
    },
  )
  dq, dkv, dz = outs['dq'], *map(_few_parts, (outs['dkv'], outs['dz']))
  outs = call(
    rows.key_gradients,
    {'k': k, 'v': v, 'dkv': dkv, 'dz': dz},
    {'dk': like(q.shape, q.dtype), 'dv': like(q.shape, q.dtype)},
  )
  return (dq, outs['dk'], outs['dv']), None, None


def _parts(shape):
  b, length, h, d = shape
  per_sm = 2 if d == hopper.TILE else 1
  return hopper.splits(b * h, hopper.chunk_count(length), per_sm)


def _stages(parts, length):
  return max(1, min(4, -(-hopper.chunk_count(length) // parts)))


def _few_parts(x):
  """Adds up the parts where the kernels would spend long on reading them."""
  if x is None or x.shape[2] <= IN_KERNEL_PARTS:
    return x
  return jnp.sum(x, axis=2, keepdims=True)


def _caller(q, mask, options, plan):
  """Calls a kernel of `pallas_gpu_rows` on the grid of `plan`."""
  b, _, h, _ = q.shape
  mask = hopper.mask_rows(mask)
  tools = hopper.Tools(options.interpret is not None)
  plan = dataclasses.replace(plan, feature_map=options.feature_map)

  def call(kernel, ins, outs):
    return hopper.call(
      kernel.name,
      functools.partial(kernel.body, plan=plan, options=options, tools=tools),
      {**ins, 'mask': mask},
      outs,
      blocks=(b, h, plan.parts),
      scratch=kernel.scratch(tools, plan, mask is not None),
      warpgroups=plan.warpgroups,
      interpret=options.interpret,
      products=kernel.products,
    )

  return call
