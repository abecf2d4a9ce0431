"""Triton kernel for the gradients dq, dk, dv of lightning attention.

A program walks over blocks of rows, from the last to the first, with dS, the
gradient of the state after the block. S, the state before it, was saved. With
P = (q k^T) * w, G = (do v^T) * w and the decays of `lra.kernels.chunks`,

  dq = G k + scale from_start * (do S^T)
  dk = G^T q + to_end * (v dS^T)
  dv = P^T do + to_end * (k dS)
  dS <- over * dS + scale (from_start * q)^T do    w_ij = scale exp(-s (i - j))
"""

import jax.numpy as jnp

from lra.kernels.lightning.pallas_triton_walk import decays
from lra.kernels.linear import features
from lra.kernels.triton import Walk, settled, zeros


def gradients(ins, outs, *, plan, names):
  """Computes the gradients of `names`, 'qkv' or 'kv', and dS before a part.

  Blocks of the plan have all columns. Further inputs are `first`, dS after
  every part, and `saved`, S before every block, for dq. Outputs, each of which
  may be None, are `rows` or dq, dk, dv; `last`, dS before every part; `dbias`,
  [B H parts N, Dh], sums of the N results.
  """
  walk = Walk(plan)
  at, shape, dot = walk.at, plan.shape, plan.tools.dot
  active = plan.options.activation == 'silu'

  def step(n, again, carry):
    ds, sums = carry
    sees = decays(ins.slopes, at, n, plan.options.scale)
    start, end = sees.start[:, None], sees.end[:, None]
    valid = at.valid(ins.mask, n)
    raw = {x: at.load(getattr(ins, x), n, valid, x) for x in 'qkv'}
    q, k, v = (features.silu(x).astype(x.dtype) if active else x
               for x in raw.values())
    # `settled` makes Triton prepare each operand just before its matmul. It
    # would otherwise prepare all of them, in every layout, before the first.
    q, k, v, do = (settled(x, n) for x in (q, k, v, at.load(ins.do, n, valid)))
    dtype, totals = do.dtype, []

    def write(name, x):
      if active:
        x = x * features.silu_slope(raw[name])
      ref = getattr(outs, f'd{name}') if outs.rows is None else outs.rows
      at.store(ref, again, valid, x, name)
      totals.append(jnp.sum(x, axis=0))

    g = (dot(do, v, turn_b=True) * sees.within()).astype(dtype)
    if 'q' in names:
      s = at.load_state(ins.saved, walk.pair * shape.blocks + n)
      write('q', dot(do, s, turn_b=True) * start + dot(g, k))
    ds_small = ds.astype(dtype)
    dk = dot(v, ds_small, turn_b=True) * end
    write('k', dk + dot(g, q, turn_a=True))
    p = (dot(q, k, turn_b=True) * sees.within()).astype(dtype)
    write('v', dot(k, ds_small) * end + dot(p, do, turn_a=True))
    do = (do.astype(jnp.float32) * start).astype(dtype)
    ds = ds * sees.over() + dot(q, do, turn_a=True)
    if sums is not None:
      sums = tuple(x + y for x, y in zip(sums, totals, strict=True))
    return ds, sums

  ds = zeros(shape.lanes, shape.lanes)
  if ins.first is not None:
    ds = at.load_state(ins.first, walk.part)
  sums = None
  if outs.dbias is not None:
    sums = (zeros(shape.lanes),) * len(names)
  ds, sums = walk.run(step, (ds, sums), reverse=True)
  if outs.last is not None:
    at.store_state(outs.last, walk.part, ds)
  for i, x in enumerate(sums or ()):
    at.store_row(outs.dbias, len(names) * walk.part + i, x)
