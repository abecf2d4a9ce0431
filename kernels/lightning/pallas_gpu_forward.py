"""The forward kernel of lightning attention for Hopper.

Warpgroup w computes value columns 64 w to 64 w + 63. It keeps these columns of
the state, as float32 in registers and as bf16 tiles in shared memory. Per
chunk, in the notation of `lra.kernels.chunks`:
  o = ((q k^T) * within) v + from_start * (q S)
  S = over * S + k^T (to_end * v)
"""

import functools

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from lra.kernels import chunks, dispatch, hopper, hopper_call
from lra.kernels.linear import features

STAGES = 3


def run(q, k, v, mask, slopes, before, return_state, save, plan):
  """Returns (out, final state or None, saved states or None).

  `before` is the state before every part; None = zeros, only with one part.
  """
  b, length, h, d = plan.shape
  w = plan.warpgroups
  like = functools.partial(dispatch.like, hopper_call.whole(q))
  tools = hopper.Tools(plan.interpret is not None)
  stages = min(STAGES, 2 * plan.per_part)
  final = like((b, h, d, d), jnp.float32)
  saved = like((b, h, plan.pairs, d, d), jnp.bfloat16)
  # `products` counts two matmuls with the state and two within a chunk.
  outs = hopper_call.call(
      'lightning_forward',
      functools.partial(_kernel, plan=plan, tools=tools),
      {'q': q, 'k': k, 'v': v, 'mask': hopper_call.mask_rows(mask),
       'slopes': slopes, 'before': before},
      {'o': like(q.shape, q.dtype), 'final': final if return_state else None,
       'saved': saved if save else None},
      blocks=(b, h, plan.parts),
      scratch={**hopper.ring_scratch(tools, 'qkv', w, stages, mask is not None),
               'state': tools.tiles(w, w), 'out': tools.moved(w),
               'spare': tools.tiles(w) if tools.simulate else None},
      warpgroups=w, interpret=plan.interpret, products=2 + 2 * hopper.TILE / d)
  return outs['o'], outs['final'], outs['saved']


def _kernel(ins, outs, scratch, *, plan, tools):
  length = plan.shape[1]
  walk = hopper.Walk(tools, ins, scratch, 'qkv', length, 2 * plan.per_part)
  b, h, part, w = walk.b, walk.h, walk.part, walk.w
  numbers = walk.numbers
  slope = ins.slopes[h]
  rows = tools.index()
  within = chunks.within(slope, tools.index(0), tools.index(1)) * plan.scale
  start = chunks.from_start(slope, rows) * plan.scale
  state_s, (out, out_lines) = scratch.state.at[w], tools.views(scratch.out)

  def store_state(state):
    return [(state_s.at[i], x) for i, x in zip(numbers, state, strict=True)]

  def step(chunk, state):
    n, (q, k, v) = chunk.n, (chunk.q, chunk.k, chunk.v)
    valid = None if ins.mask is None else chunk.valid()
    if ins.mask is not None or plan.silu:
      _prepare((k.at[w], v.at[w]), valid, plan, tools)
      if plan.silu:
        _prepare((q.at[w],), None, plan, tools)
      walk.meet()
    if outs.saved is not None:
      _save(outs.saved, state_s, numbers, b, h, n, w)
    scores, o = tools.products(
        [(q.at[i], hopper.turned(k.at[i])) for i in numbers],
        [(q.at[i], state_s.at[i]) for i in numbers])
    spare = scratch.spare.at[w] if tools.simulate else None
    scores = tools.operand(scores * within, spare)
    o = o * hopper.row(start)
    (o,) = tools.add((o, [(scores, v.at[w])]))

    exist = jnp.minimum(length - n * hopper.TILE, hopper.TILE)
    v_end = tools.load(v.at[w]).astype(jnp.float32)
    v_end = v_end * hopper.row(chunks.to_end(slope, rows, exist))
    # The tile `out` of the result first holds an operand.
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
    tools.publish((out.at[w], v_end))
    left = chunks.over(slope, exist)
    state = tools.add(*((x * left, [(hopper.turned(k.at[i]), out.at[w])])
                        for i, x in zip(numbers, state, strict=True)))
    o = hopper.keep(valid, o)
    tools.publish((out.at[w], o), *store_state(state))
    plgpu.copy_smem_to_gmem(out_lines.at[w],
                            outs.o.at[b, hopper.at(n), h, hopper.tile(w)])
    return state

  state = tuple(_first_state(ins.before, b, h, part, i, w, tools)
                for i in numbers)
  tools.publish(*store_state(state))
  state = walk.run(step, state)
  if outs.final is not None:
    @pl.when(part == plan.parts - 1)
    def _():
      for i, x in enumerate(state):
        outs.final[b, h, hopper.tile(i), hopper.tile(w)] = x

  plgpu.wait_smem_to_gmem(0)


def _first_state(before, b, h, part, i, w, tools):
  if before is None:
    return tools.zeros()
  where = (b, h, part, hopper.tile(i), hopper.tile(w))
  return tools.load_global(before, where)


def _prepare(refs, valid, plan, tools):
  for ref in refs:
    x = tools.load(ref)
    if plan.silu:
      x = features.silu(x)
    tools.publish((ref, hopper.keep(valid, x)))


def _save(saved, state_s, numbers, b, h, n, w):
  @pl.when(lax.rem(n, jnp.int32(2)) == 0)
  def _():
    pair = lax.div(n, jnp.int32(2))
    for i in numbers:
      plgpu.copy_smem_to_gmem(
          state_s.at[i], saved.at[b, h, pair, hopper.tile(i), hopper.tile(w)])
