"""Linear attention for Hopper: two kernels forward, two backward.

The forward pass reads or writes 4 tensors, the backward pass 7, see
docs/kernels-design.md. L is cut into parts, so that any number of heads fills
the device.
"""

import dataclasses
import functools

import jax.numpy as jnp

from lra.kernels import dispatch, hopper, hopper_call, hopper_sums
from lra.kernels.linear import pallas_gpu_rows as rows
from lra.kernels.linear.operands import check_value_width

IN_KERNEL_PARTS = 4


def supported(shape, dtype, value_width=None, state=False):
  del state
  check_value_width(shape, value_width)
  hopper_call.supported(shape, dtype)


def forward(inputs, options, save):
  (q, k, v), mask = hopper_call.operands(inputs), inputs.mask
  b, length, h, d = q.shape
  warpgroups = d // hopper.TILE
  parts = _parts(q.shape)
  plan = hopper_sums.Plan(
      length=length, warpgroups=warpgroups, parts=parts,
      feature_map=options.feature_map, normalize=options.normalize,
      interpret=options.interpret, stages=_stages(parts, length))
  sums = hopper_sums.sums(k, v, mask, plan)
  sums = _few_parts(_with_state(sums, inputs.state, options))
  final = None
  if options.return_state:
    sums = _added(sums)
    final = _state(sums, options)
  kv, z = sums
  call = _caller(q, mask, options, plan)
  outs = call(rows.outputs, {'q': q, 'kv': kv, 'z': z},
              {'o': dispatch.like(hopper_call.whole(q), q.shape, q.dtype)})
  return (outs['o'], final), sums if save else None


def backward(inputs, saved, cotangents, options):
  (q, k, v), mask = hopper_call.operands(inputs), inputs.mask
  b, length, h, d = q.shape
  (do, dfinal), (kv, z) = cotangents, saved
  parts = _parts(q.shape)
  plan = hopper_sums.Plan(length=length, warpgroups=d // hopper.TILE,
                          parts=parts, normalize=options.normalize,
                          stages=_stages(parts, length))
  like = functools.partial(dispatch.like, hopper_call.whole(q))
  dq, dk, dv = hopper_call.gradients_like(inputs)
  norm = like((b, h, parts, d), jnp.float32) if options.normalize else None
  bias_q, bias_k, bias_v = hopper.column_sums(inputs, parts, like)
  call = _caller(q, mask, options, plan)
  outs = call(rows.query_gradients, {'q': q, 'do': do, 'kv': kv, 'z': z},
              {'dq': dq, 'dkv': like((b, h, parts, d, d), jnp.float32),
               'dz': norm, 'bias_q': bias_q})
  bias_q = outs['bias_q']
  dsums = _with_state((outs['dkv'], outs['dz']), dfinal, options)
  dsums = _few_parts(dsums)
  dstate = None
  if inputs.state is not None:
    dsums = _added(dsums)
    dstate = _state(dsums, options)
  dq, (dkv, dz) = outs['dq'], dsums
  if inputs.packed:
    # dk and dv are written into the array that already holds dq.
    dk, dv = (dataclasses.replace(x, array=dq) for x in (dk, dv))
  outs = call(rows.key_gradients, {'k': k, 'v': v, 'dkv': dkv, 'dz': dz},
              {'dk': dk, 'dv': dv, 'bias_k': bias_k, 'bias_v': bias_v})
  if inputs.packed:
    dq = outs['dk']
  bias = hopper.bias_gradient((bias_q, outs['bias_k'], outs['bias_v']))
  return hopper_call.gradients(inputs, (dq, outs['dk'], outs['dv']), bias,
                               dstate)


def _parts(shape):
  b, length, h, d = shape
  per_sm = 2 if d == hopper.TILE else 1
  return hopper_call.splits(b * h, hopper_call.chunk_count(length), per_sm)


def _stages(parts, length):
  return max(1, min(4, -(-hopper_call.chunk_count(length) // parts)))


def _with_state(sums, state, options):
  """Appends a state, if any, to (S, z) [B, H, parts, ...] as one more part."""
  if state is None:
    return sums
  state = state if options.normalize else (state, None)
  return tuple(None if x is None
               else jnp.concatenate([x, y[:, :, None]], axis=2)
               for x, y in zip(sums, state, strict=True))


def _few_parts(sums):
  """Sums the parts if there are too many for the kernels to read quickly."""
  return sums if sums[0].shape[2] <= IN_KERNEL_PARTS else _added(sums)


def _added(sums):
  return tuple(None if x is None else jnp.sum(x, axis=2, keepdims=True)
               for x in sums)


def _state(sums, options):
  """Returns one part of (S, z) in the form of the public functions' state."""
  kv, z = (None if x is None else x[:, :, 0] for x in sums)
  return (kv, z) if options.normalize else kv


def _caller(q, mask, options, plan):
  b, _, h, _ = q.shape
  mask = hopper_call.mask_rows(mask)
  tools = hopper.Tools(options.interpret is not None)
  plan = dataclasses.replace(plan, feature_map=options.feature_map)

  def call(kernel, ins, outs):
    return hopper_call.call(
        kernel.name,
        functools.partial(kernel.body, plan=plan, options=options, tools=tools),
        {**ins, 'mask': mask}, outs, blocks=(b, h, plan.parts),
        scratch=kernel.scratch(tools, plan, mask is not None),
        warpgroups=plan.warpgroups, interpret=options.interpret,
        products=kernel.products)

  return call
