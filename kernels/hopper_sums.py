"""Sums of x^T y over the rows of a sequence, for Hopper.

They are the first half of linear attention, sum_j phi(k_j)^T v_j with
z = sum_j phi(k_j). In lightning attention they are the final state of a part
of a sequence. L is cut into parts; a block sums one part of one (b, h).
"""

import dataclasses
import functools

import jax.numpy as jnp

from lra.kernels import chunks, dispatch, hopper, hopper_call
from lra.kernels.linear import features


@dataclasses.dataclass(frozen=True)
class Plan:
  """Static parameters of a sum.

  Attributes:
    feature_map, normalize: map applied to x; whether to sum phi(x) too.
    reverse: decay towards the first row (gradients), not the last.
    scale, silu: only with decay, factor of x; the operands that get SiLU, 'x',
      'xy' or ''.
    stages: slots of the ring.
    chunks_per_part: chunks in a part; 0 cuts L evenly.
  """
  length: int
  warpgroups: int
  parts: int
  feature_map: str = 'identity'
  normalize: bool = False
  reverse: bool = False
  scale: float = 1.0
  silu: str = ''
  interpret: object = None
  stages: int = 4
  chunks_per_part: int = 0

  @property
  def per_part(self):
    even = -(-hopper_call.chunk_count(self.length) // self.parts)
    return self.chunks_per_part or even


def sums(x, y, mask, plan, slopes=None):
  """Returns float32 sums of x^T y and of phi(x), or None, over each part of L.

  x and y are arrays or `hopper_call.Heads`. With slopes [H], row j of a part of
  n rows has weight exp(-s (n - 1 - j)), or scale * exp(-s (j + 1)) with
  `plan.reverse`.
  """
  b, _, h, d = x.shape
  like = functools.partial(dispatch.like, hopper_call.whole(x),
                           dtype=jnp.float32)
  outs = {'xy': like((b, h, plan.parts, d, d)),
          'z': like((b, h, plan.parts, d)) if plan.normalize else None}
  ins = {'x': x, 'y': y, 'mask': hopper_call.mask_rows(mask), 'slopes': slopes}
  w = plan.warpgroups
  tools = hopper.Tools(plan.interpret is not None)
  scratch = {**hopper.ring_scratch(tools, 'xy', w, plan.stages,
                                   mask is not None),
             'ones': tools.factors(w, 1) if plan.normalize else None}
  outs = hopper_call.call('sums',
                          functools.partial(_kernel, plan=plan, tools=tools),
                          ins, outs, blocks=(b, h, plan.parts), scratch=scratch,
                          warpgroups=w, interpret=plan.interpret, products=1)
  return outs['xy'], outs['z']


def _kernel(ins, outs, scratch, *, plan, tools):
  walk = hopper.Walk(tools, ins, scratch, 'xy', plan.length, plan.per_part,
                     plan.reverse)
  b, h, part, w = walk.b, walk.h, walk.part, walk.w
  masked = ins.mask is not None
  slope = None if ins.slopes is None else ins.slopes[h]
  if plan.normalize:
    ones, numbers = (view.at[w] for view in tools.views(scratch.ones))
    tools.publish((numbers, jnp.ones(numbers.shape, jnp.bfloat16)))

  def step(chunk, sums):
    x, y = chunk.x, chunk.y
    rows = jnp.minimum(plan.length - chunk.n * hopper.TILE, hopper.TILE)
    x_w = _prepare(x.at[w], chunk, masked, rows, slope, plan, tools)
    stores = [] if x_w is None else [(x.at[w], x_w)]
    if masked or 'y' in plan.silu:
      y_w = tools.load(y.at[w])
      if 'y' in plan.silu:
        y_w = features.silu(y_w)
      if masked:
        y_w = hopper.keep(chunk.valid(), y_w)
      stores.append((y.at[w], y_w))
    if stores:
      tools.publish(*stores)
      walk.meet()
    if slope is not None:
      left = chunks.over(slope, rows)
      sums = tuple(s * left for s in sums)
    terms = [[(hopper.turned(x.at[i]), y.at[w])] for i in walk.numbers]
    if plan.normalize:
      terms.append([(hopper.turned(x.at[w]), hopper.turned(ones))])
    return tools.add(*zip(sums, terms, strict=True))

  sums = (tools.zeros(),) * plan.warpgroups
  if plan.normalize:
    sums = *sums, tools.zeros((hopper.TILE, 8))
  sums = walk.run(step, sums)
  for i in range(plan.warpgroups):
    outs.xy[b, h, part, hopper.tile(i), hopper.tile(w)] = sums[i]
  if plan.normalize:
    # Each of the 8 columns holds z.
    outs.z[b, h, part, hopper.tile(w)] = jnp.sum(sums[-1], axis=1) / 8


def _prepare(x, chunk, masked, rows, slope, plan, tools):
  """Applies phi, mask and decay to a tile; returns None if x is unchanged."""
  plain = plan.feature_map == 'identity' and slope is None
  if plain and not masked and not plan.normalize:
    return None
  x = features.apply(plan.feature_map, tools.load(x))
  if 'x' in plan.silu:
    x = features.silu(x)
  if masked or plan.normalize:
    x = hopper.keep(chunk.valid(), x)
  if slope is None:
    return x
  if plan.reverse:
    weight = chunks.from_start(slope, tools.index()) * plan.scale
  else:
    weight = chunks.to_end(slope, tools.index(), rows)
  return x * hopper.row(weight)
