"""The Triton kernels of linear attention, on blocks of rows of one (b, h).

`sums` and `query_gradients` walk over the blocks of a part of the sequence, the
others take one block each. S may be cut into blocks of columns. Then `sums` has
a program for each of these, and the other kernels loop over them.
"""

import functools

import jax.numpy as jnp

from lra.kernels.linear import features
from lra.kernels.triton import Walk, keep, settled, zeros


def _phi(plan, x, n):
  f = features.apply(plan.options.feature_map, x)
  return f if plan.options.feature_map == 'identity' else settled(f, n)


def _slope(plan, x):
  return features.slope(plan.options.feature_map, x)


def sums(ins, outs, *, plan, names, scale):
  """Computes scale * phi(x)^T y and the sum of phi(x), over a part.

  If z is given, phi(x) is also divided by phi(x) . z + eps. `names` are the
  names of x and y ('q', 'k', 'v'), by which to find them in a packed array.
  """
  walk = Walk(plan, by_columns=True)
  at, dtype, shape = walk.at, ins.x.dtype, plan.shape
  z = None if ins.z is None else at.load_row(ins.z, walk.pair)

  def step(n, _, carry):
    yx, total = carry
    valid = at.valid(ins.mask, n)
    f = _phi(plan, at.load(ins.x, n, valid, names[0]), n)
    y = at.load(ins.y, n, valid, names[1], walk.block)
    if z is not None:
      f = f * _inverse(f, z, plan)[:, None]
    f = keep(valid, f).astype(dtype)
    if outs.total is not None:
      # Sums rounded values, like the matmul whose result this normalises.
      total = total + jnp.sum(f.astype(jnp.float32), axis=0)
    return yx + plan.tools.dot(y, f, turn_a=True), total

  total = None if outs.total is None else zeros(shape.lanes)
  yx, total = walk.run(step, (zeros(shape.columns, shape.lanes), total))
  at.store_state(outs.xy, walk.part, yx.T * scale, columns=walk.block)
  if outs.total is not None:
    # Programs of other blocks of columns write equal values.
    at.store_row(outs.total, walk.part, total)


def outputs(ins, outs, *, plan):
  """Computes o from q, S and z; inputs q, kv, z, mask."""
  walk = Walk(plan)
  at, n = walk.at, walk.first
  valid = at.valid(ins.mask, n)
  f = _phi(plan, at.load(ins.q, n, valid, 'q'), n).astype(ins.q.dtype)
  inverse = plan.options.scale
  if ins.z is not None:
    z = at.load_row(ins.z, walk.pair)
    inverse = _inverse(f.astype(jnp.float32), z, plan)[:, None]

  def step(block, carry):
    kv = at.load_state(ins.kv, walk.pair, columns=block)
    o = plan.tools.dot(f, kv.astype(f.dtype)) * inverse
    at.store(outs.o, n, valid, o, block=block)
    return carry

  plan.over_columns(step)


def query_gradients(ins, outs, *, plan):
  """Computes dq of a part, and the part's sums dS, dz and dbias (of dq).

  Inputs q, do, kv, z, mask; outputs dq, and dkv, dz, dbias or None.
  """
  walk = Walk(plan)
  at, options, shape = walk.at, plan.options, plan.shape
  dtype = ins.q.dtype
  load = functools.partial(at.load_state, ins.kv, walk.pair)
  whole = load() if shape.column_blocks == 1 else None
  z = None if ins.z is None else at.load_row(ins.z, walk.pair)

  def step(n, again, carry):
    dkv, dz, dbias = carry
    valid = at.valid(ins.mask, n)
    x = at.load(ins.q, n, valid, 'q')
    f, do = _phi(plan, x, n), None
    if shape.column_blocks == 1:
      do = at.load(ins.do, n, valid)

    def add(block, dq):
      part = at.load(ins.do, n, valid, block=block) if do is None else do
      kv = load(columns=block) if whole is None else whole
      return dq + plan.tools.dot(kv.astype(dtype), part, turn_b=True)

    dq = plan.over_columns(add, zeros(shape.lanes, shape.rows)).T
    if z is None:
      dq = dq * options.scale
    else:
      norm = _norm(f, z, plan)
      inverse = options.scale / norm
      # dq is a float32 result; the operand do is rounded.
      dnorm = -jnp.sum(f * dq, axis=1) * inverse * (1.0 / norm)
      if valid is not None:
        inverse = jnp.where(valid, inverse, 0.0)
        dnorm = jnp.where(valid, dnorm, 0.0)
      dz = dz + jnp.sum(f * dnorm[:, None], axis=0)
      dq = dq * inverse[:, None] + dnorm[:, None] * z[None]
      f = f * inverse[:, None]
    dq = keep(valid, dq * _slope(plan, x))
    at.store(outs.dq, again, valid, dq, 'q')
    if dbias is not None:
      dbias = dbias + jnp.sum(dq, axis=0)
    if dkv is not None:
      f = keep(valid, f).astype(dtype)
      dkv = dkv + plan.tools.dot(do, f, turn_a=True)
    return dkv, dz, dbias

  lanes = shape.lanes
  carry = (None if outs.dkv is None else zeros(lanes, lanes),
           None if outs.dz is None else zeros(lanes),
           None if outs.dbias is None else zeros(lanes))
  dkv, dz, dbias = walk.run(step, carry)
  if dkv is not None:
    scale = options.scale if z is None else 1.0
    at.store_state(outs.dkv, walk.part, dkv.T * scale)
  for ref, x in ((outs.dz, dz), (outs.dbias, dbias)):
    if ref is not None:
      at.store_row(ref, walk.part, x)


def key_gradients(ins, outs, *, plan):
  """Computes dk and dv from k, v, dS and dz; an input `taken` becomes dk.

  dv may be in the array of dk. dbias are the sums of dk and dv over the block.
  """
  walk = Walk(plan)
  at, shape, n = walk.at, plan.shape, walk.first
  valid = at.valid(ins.mask, n)
  x = at.load(ins.k, n, valid, 'k')
  f = _phi(plan, x, n).astype(x.dtype)
  dv_ref = outs.dk if outs.dv is None else outs.dv
  load = functools.partial(at.load_state, ins.dkv, walk.pair)
  whole = load() if shape.column_blocks == 1 else None

  def state(block):
    dkv = load(columns=block) if whole is None else whole
    return dkv.astype(x.dtype)

  def values(block, carry):
    dv = keep(valid, plan.tools.dot(f, state(block)))
    at.store(dv_ref, n, valid, dv, 'v', block)
    if outs.dbias is not None:
      total = jnp.sum(dv, axis=0)
      at.store_row(outs.dbias, 2 * walk.part + 1, total, block)
    return carry

  def keys(block, dk):
    v = at.load(ins.v, n, valid, 'v', block)
    return dk + plan.tools.dot(v, state(block), turn_b=True)

  # dv comes first: phi(k) leaves the registers before dk needs them.
  plan.over_columns(values)
  dk = plan.over_columns(keys, zeros(shape.rows, shape.lanes))
  if ins.dz is not None:
    dk = dk + at.load_row(ins.dz, walk.pair)[None]
  dk = keep(valid, dk * _slope(plan, x))
  at.store(outs.dk, n, valid, dk, 'k')
  if outs.dbias is not None:
    at.store_row(outs.dbias, 2 * walk.part, jnp.sum(dk, axis=0))


def _norm(f, z, plan):
  return jnp.sum(f * z[None], axis=1) + plan.options.eps


def _inverse(f, z, plan):
  return plan.options.scale / _norm(f, z, plan)
