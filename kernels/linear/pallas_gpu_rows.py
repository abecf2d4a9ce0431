"""Kernels of linear attention for Hopper that write one result row per token.

Each block walks over the chunks of one part of one (b, h), with S (or dS) as
bf16 tiles in shared memory. `scratch` of a kernel lists its shared memory.
"""

import functools
import types

import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu

from lra.kernels import hopper
from lra.kernels.hopper import Columns
from lra.kernels.linear import features


class _Walk(hopper.Walk):

  def __init__(self, ins, scratch, names, plan, tools):
    super().__init__(tools, ins, scratch, names, plan.length, plan.per_part)

  def tile_sum(self, ref, i, j):
    where = (hopper.tile(i), hopper.tile(j))
    return self._over_parts(ref, where, hopper.MATRIX)

  def column_sum(self, ref):
    return self._over_parts(ref, (hopper.tile(self.w),), hopper.COLS)

  def _over_parts(self, ref, where, layout):
    load = functools.partial(self.tools.load_global, ref, layout=layout)
    parts = range(ref.shape[2])
    return sum(load(index=(self.b, self.h, p, *where)) for p in parts)

  def write(self, chunk, *results):
    """Stores results in this warpgroup's columns of their targets.

    A result is ((tiles, lines), value, target): two views of scratch memory, a
    value in registers, and an array [B, L, H, Dh].
    """
    w = self.w
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
    self.tools.publish(
        *((tiles.at[w], value) for (tiles, _), value, _ in results))
    for (_, lines), _, target in results:
      plgpu.copy_smem_to_gmem(
          lines.at[w],
          target.at[self.b, hopper.at(chunk.n), self.h, hopper.tile(w)])


def _plain(plan):
  return plan.feature_map == 'identity' and not plan.normalize


def _parity(chunk):
  return lax.rem(chunk.t, jnp.int32(2))


def _rounded(x):
  return x.astype(jnp.bfloat16).astype(jnp.float32)


def _outputs_scratch(tools, plan, masked):
  w = plan.warpgroups
  return {**hopper.ring_scratch(tools, 'q', w, plan.stages, masked),
          'kv': tools.tiles(w, w),
          'norm': plgpu.SMEM((2, w, hopper.TILE), jnp.float32),
          'o': tools.moved(w)}


def _outputs(ins, outs, scratch, *, plan, options, tools):
  walk = _Walk(ins, scratch, ('q',), plan, tools)
  w, numbers = walk.w, walk.numbers
  # Tiles of column w of S, which no other warpgroup reads.
  kv = scratch.kv.at[w]
  tools.publish(*((kv.at[i], walk.tile_sum(ins.kv, i, w)) for i in numbers))
  z = walk.column_sum(ins.z) if plan.normalize else None
  o = tools.views(scratch.o)

  def step(chunk, _):
    parity = _parity(chunk)
    if not _plain(plan):
      f = features.apply(plan.feature_map, tools.load(chunk.q.at[w]))
      stores = [(chunk.q.at[w], f)]
      if plan.normalize:
        norm = jnp.sum(_rounded(f) * hopper.col(z), axis=1)
        stores.append((scratch.norm.at[parity, w], norm))
      tools.publish(*stores)
      walk.meet()
    out = tools.product(*((chunk.q.at[i], kv.at[i]) for i in numbers))
    if plan.normalize:
      norms = scratch.norm.at[parity]
      norm = sum(tools.load(norms.at[i], hopper.ROWS) for i in numbers)
      out = out * hopper.row(options.scale / (norm + options.eps))
    else:
      out = out * options.scale
    if ins.mask is not None:
      out = hopper.keep(chunk.valid(), out)
    walk.write(chunk, (o, out, outs.o))

  walk.run(step)
  plgpu.wait_smem_to_gmem(0)


def _query_gradients_scratch(tools, plan, masked):
  w = plan.warpgroups
  return {**hopper.ring_scratch(tools, ('q', 'do'), w, plan.stages, masked),
          'kv': tools.tiles(w, w),
          'norm': plgpu.SMEM((2, w, hopper.TILE), jnp.float32),
          'num': plgpu.SMEM((2, w, hopper.TILE), jnp.float32),
          'factors': tools.factors(w, 2) if plan.normalize else None,
          'ones': tools.factors(w, 1), 'dq': tools.moved(w)}


def _query_gradients(ins, outs, scratch, *, plan, options, tools):
  walk = _Walk(ins, scratch, ('q', 'do'), plan, tools)
  b, h, part, w = walk.b, walk.h, walk.part, walk.w
  numbers = walk.numbers
  kv = scratch.kv.at[w]  # tiles of row w of S
  tools.publish(*((kv.at[i], walk.tile_sum(ins.kv, w, i)) for i in numbers))
  if plan.normalize:
    z = walk.column_sum(ins.z)
    factors, factor_rows = (v.at[w] for v in tools.views(scratch.factors))
    tools.publish((factor_rows, jnp.zeros(factor_rows.shape, jnp.bfloat16)))
  dq_views = tools.views(scratch.dq)
  wanted = outs.bias_q is not None
  columns = Columns(tools, scratch.ones, w, int(wanted))

  def over_tiles(ref):
    return sum(tools.load(ref.at[i], hopper.ROWS) for i in numbers)

  def step(chunk, carry):
    sums, bias = carry
    q_w, do_w = chunk.q.at[w], chunk.do.at[w]
    if ins.mask is not None:
      tools.publish((do_w, hopper.keep(chunk.valid(), tools.load(do_w))))
      walk.meet()
    dq = tools.product(
        *((chunk.do.at[i], hopper.turned(kv.at[i])) for i in numbers))
    if _plain(plan) and ins.mask is None:
      dq = dq * options.scale
      walk.write(chunk, (dq_views, dq, outs.dq))
    else:
      x = tools.load(q_w)
      f = features.apply(plan.feature_map, x)
      valid = chunk.valid()
      stores = []
      if plan.normalize:
        norm = jnp.sum(f * hopper.col(z), axis=1)
        num = jnp.sum(f * dq, axis=1)
        at = _parity(chunk)
        tools.publish((scratch.norm.at[at, w], norm),
                      (scratch.num.at[at, w], num))
        walk.meet()
        norm = over_tiles(scratch.norm.at[at]) + options.eps
        ratio = -over_tiles(scratch.num.at[at]) / norm
        inverse = options.scale / norm
        if valid is not None:
          inverse = jnp.where(valid > 0, inverse, 0.0)
          ratio = jnp.where(valid > 0, ratio, 0.0)
        dq = dq * hopper.row(inverse)
        dq = dq + hopper.row(ratio * inverse) * hopper.col(z)
        f = f * hopper.row(inverse)
        stores = _split(ratio, factor_rows)
      else:
        dq = dq * options.scale
      dq = hopper.keep(valid, dq * features.slope(plan.feature_map, x))
      f = hopper.keep(valid, f)
      plgpu.wait_smem_to_gmem(0, wait_read_only=True)
      tools.publish((q_w, f), *stores)
      walk.write(chunk, (dq_views, dq, outs.dq))
      walk.meet()
    terms = [[(hopper.turned(chunk.q.at[i]), do_w)] for i in numbers]
    if plan.normalize:
      terms.append([(hopper.turned(q_w), hopper.turned(factors))])
    sums = tools.add(*zip(sums, terms, strict=True))
    return sums, columns.add(bias, dq_views[0].at[w])

  sums = (tools.zeros(),) * plan.warpgroups
  if plan.normalize:
    sums = *sums, tools.zeros((hopper.TILE, 16))
  sums, bias = walk.run(step, (sums, columns.zeros()))
  if wanted:
    columns.store(bias, [outs.bias_q], (b, h, part))
  scale = 1.0 if plan.normalize else options.scale
  for i in range(plan.warpgroups):
    dkv = sums[i] * scale
    outs.dkv[b, h, part, hopper.tile(i), hopper.tile(w)] = dkv
  if plan.normalize:
    outs.dz[b, h, part, hopper.tile(w)] = jnp.sum(sums[-1], axis=1)
  plgpu.wait_smem_to_gmem(0)


def _split(x, rows):
  """Returns stores of x as a sum of two bf16 numbers, in rows 0 and 8."""
  return [(rows.at[0], x), (rows.at[8], x - _rounded(x))]


def _key_gradients_scratch(tools, plan, masked):
  w = plan.warpgroups
  return {**hopper.ring_scratch(tools, ('k', 'v'), w, plan.stages, masked),
          'dkv': tools.tiles(w, w), 'ones': tools.factors(w, 1),
          'dk': tools.moved(w), 'dv': tools.moved(w)}


def _key_gradients(ins, outs, scratch, *, plan, options, tools):
  del options
  walk = _Walk(ins, scratch, ('k', 'v'), plan, tools)
  w, numbers = walk.w, walk.numbers
  dkv = scratch.dkv
  tools.publish(
      *((dkv.at[w, i], walk.tile_sum(ins.dkv, w, i)) for i in numbers))
  walk.meet()
  dz = walk.column_sum(ins.dz) if plan.normalize else None
  dk_views, dv_views = tools.views(scratch.dk), tools.views(scratch.dv)
  wanted = outs.bias_k is not None
  columns = Columns(tools, scratch.ones, w, 2 * wanted)

  def step(chunk, bias):
    mapped = plan.feature_map != 'identity'
    if mapped:
      x = tools.load(chunk.k.at[w])
      f = features.apply(plan.feature_map, x)
      tools.publish((chunk.k.at[w], f))
      walk.meet()
    dk, dv = tools.products(
        [(chunk.v.at[i], hopper.turned(dkv.at[w, i])) for i in numbers],
        [(chunk.k.at[i], dkv.at[i, w]) for i in numbers])
    if plan.normalize:
      dk = dk + hopper.col(dz)
    if mapped:
      dk = dk * features.slope(plan.feature_map, x)
    if ins.mask is not None or wanted:
      # Rows beyond the end are not written, but would be summed.
      valid = chunk.valid()
      dk, dv = hopper.keep(valid, dk), hopper.keep(valid, dv)
    walk.write(chunk, (dk_views, dk, outs.dk), (dv_views, dv, outs.dv))
    return columns.add(bias, dk_views[0].at[w], dv_views[0].at[w])

  bias = walk.run(step, columns.zeros())
  if wanted:
    where = walk.b, walk.h, walk.part
    columns.store(bias, [outs.bias_k, outs.bias_v], where)
  plgpu.wait_smem_to_gmem(0)


outputs = types.SimpleNamespace(name='outputs', body=_outputs,
                                scratch=_outputs_scratch, products=1)
query_gradients = types.SimpleNamespace(
    name='query_gradients', body=_query_gradients,
    scratch=_query_gradients_scratch, products=2)
key_gradients = types.SimpleNamespace(name='key_gradients', body=_key_gradients,
                                      scratch=_key_gradients_scratch,
                                      products=2)
