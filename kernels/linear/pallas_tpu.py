"""Linear attention for TPU: one kernel forward, one backward.

The grid is (B, head groups, 2, blocks of rows). Forward, sweep 0 sums
S = phi(k)^T v and z = sum phi(k) on chip, sweep 1 writes the outputs.
Backward, sweep 0 reads q and do, writes dq and sums dS and dz; sweep 1 reads
k and v and writes dk and dv. An operand that a sweep does not use stays
parked on one block, so that nothing is moved twice: 4 and 7 tensors.
"""

import functools

import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels import dispatch, tpu
from kernels.linear import features
from kernels.linear.options import check_state, check_value_width


def supported(shape, dtype, value_width=None, state=False):
  """Raises NotImplementedError for what `forward` cannot take."""
  check_value_width(shape, value_width)
  check_state(state)
  tpu.supported(shape, dtype)


def forward(inputs, options, save):
  """(out, final state or None, sums or None); see `kernels.vjp`."""
  (q, k, v), mask = inputs.apart(), inputs.mask
  tiles = tpu.tiling(q.shape, q.dtype)
  first, second, mask_rows, state, norm = _specs(tiles)
  b, _, h, d = q.shape
  like = functools.partial(dispatch.like, q)
  ins = {
    'q': (second, tpu.flat(q)),
    'k': (first, tpu.flat(k)),
    'v': (first, tpu.flat(v)),
    'mask': (mask_rows, tpu.mask_rows(mask)),
  }
  outs = {
    'o': (second, like(tpu.flat(q).shape, q.dtype)),
    'kv': (state, like((b, h, d, d), q.dtype) if save else None),
    'z': (norm, like((b, h, 1, d), jnp.float32) if save else None),
  }
  outs = _call(_forward_kernel, tiles, options, ins, outs, q.dtype)
  saved = (outs['kv'], outs['z']) if save else None
  return outs['o'].reshape(q.shape), None, saved


def backward(inputs, saved, do, dfinal, options):
  """(gradients of q, k, v; None; None)."""
  (q, k, v), mask = inputs.apart(), inputs.mask
  tiles = tpu.tiling(q.shape, q.dtype)
  first, second, mask_rows, state, norm = _specs(tiles)
  ins = {
    'q': (first, tpu.flat(q)),
    'k': (second, tpu.flat(k)),
    'v': (second, tpu.flat(v)),
    'do': (first, tpu.flat(do)),
    'kv': (state, saved[0]),
    'z': (norm, saved[1]),
    'mask': (mask_rows, tpu.mask_rows(mask)),
  }
  grad = dispatch.like(q, tpu.flat(q).shape, q.dtype)
  outs = {'dq': (first, grad), 'dk': (second, grad), 'dv': (second, grad)}
  outs = _call(_backward_kernel, tiles, options, ins, outs, q.dtype)
  grads = (outs[name].reshape(q.shape) for name in ('dq', 'dk', 'dv'))
  return tuple(grads), None, None


def _specs(tiles):
  """Blocks moved in sweep 0, in sweep 1, of the mask, of S and of z."""
  rows, lanes, last = tiles.rows, tiles.lanes, tiles.blocks - 1
  heads, width = tiles.heads, tiles.width
  return (
    pl.BlockSpec(
      (1, rows, lanes), lambda b, g, s, n: (b, n * (1 - s) + last * s, g)
    ),
    pl.BlockSpec((1, rows, lanes), lambda b, g, s, n: (b, n * s, g)),
    pl.BlockSpec((1, 1, rows), lambda b, g, s, n: (b, 0, n)),
    pl.BlockSpec((1, heads, width, width), lambda b, g, s, n: (b, g, 0, 0)),
    pl.BlockSpec((1, heads, 1, width), lambda b, g, s, n: (b, g, 0, 0)),
  )


def _call(kernel, tiles, options, ins, outs, dtype):
  return tpu.call(
    functools.partial(kernel, tiles=tiles, options=options, dtype=dtype),
    ins,
    outs,
    grid=(tiles.batch, tiles.groups, 2, tiles.blocks),
    semantics=('parallel', 'parallel', 'arbitrary', 'arbitrary'),
    scratch=[
      (tiles.heads, tiles.width, tiles.width),
      (tiles.heads, 1, tiles.width),
    ],
    interpret=options.interpret,
  )


def _forward_kernel(ins, outs, kv_scr, z_scr, *, tiles, options, dtype):
  sweep, n = pl.program_id(2), pl.program_id(3)
  nn, _, tn = tpu.products(dtype)
  phi = functools.partial(features.apply, options.feature_map)

  @pl.when((sweep == 0) & (n == 0))
  def _():
    kv_scr[...] = jnp.zeros_like(kv_scr)
    z_scr[...] = jnp.zeros_like(z_scr)

  @pl.when(sweep == 0)
  def _():
    valid = _valid(ins, n, tiles)
    for h, lane in tpu.head_lanes(tiles):
      k = tpu.keep(valid, phi(ins.k[0, :, lane])).astype(dtype)
      v = tpu.keep(valid, ins.v[0, :, lane])
      kv_scr[h] += tn(k, v)
      z_scr[h] += jnp.sum(k.astype(jnp.float32), axis=0, keepdims=True)

  @pl.when(sweep == 1)
  def _():
    valid = _valid(ins, n, tiles)
    for h, lane in tpu.head_lanes(tiles):
      q = phi(ins.q[0, :, lane]).astype(dtype)
      o = nn(q, kv_scr[h].astype(dtype)) * options.scale
      if options.normalize:
        o = o / _norm(q, z_scr[h], options)
      outs.o[0, :, lane] = tpu.keep(valid, o).astype(dtype)

  if outs.kv is not None:

    @pl.when((sweep == 1) & (n == 0))
    def _():
      outs.kv[0] = kv_scr[...].astype(dtype)
      outs.z[0] = z_scr[...]


def _backward_kernel(ins, outs, dkv_scr, dz_scr, *, tiles, options, dtype):
  sweep, n = pl.program_id(2), pl.program_id(3)
  nn, nt, tn = tpu.products(dtype)
  phi = functools.partial(features.apply, options.feature_map)
  dphi = functools.partial(features.slope, options.feature_map)

  @pl.when((sweep == 0) & (n == 0))
  def _():
    dkv_scr[...] = jnp.zeros_like(dkv_scr)
    dz_scr[...] = jnp.zeros_like(dz_scr)

  @pl.when(sweep == 0)
  def _():
    valid = _valid(ins, n, tiles)
    for h, lane in tpu.head_lanes(tiles):
      x = tpu.keep(valid, ins.q[0, :, lane])
      do = tpu.keep(valid, ins.do[0, :, lane])
      q, kv = phi(x).astype(dtype), ins.kv[0, h]
      dq = nt(do, kv)
      if options.normalize:
        # Divide the float32 products, not their bf16 operand do: one
        # rounding less in dq and in dkv.
        norm = _norm(q, ins.z[0, h], options)
        num = jnp.sum(do.astype(jnp.float32) * nn(q, kv), axis=1, keepdims=True)
        dnorm = tpu.keep(valid, -num / (norm * norm))
        dq = dq / norm + dnorm * ins.z[0, h]
        dz_scr[h] += jnp.sum(q * dnorm, axis=0, keepdims=True)
        q = tpu.keep(valid, phi(x) / norm).astype(dtype)
      dq = tpu.keep(valid, dq * dphi(x)) * options.scale
      outs.dq[0, :, lane] = dq.astype(dtype)
      dkv_scr[h] += tn(q, do)

  @pl.when(sweep == 1)
  def _():
    valid = _valid(ins, n, tiles)
    for h, lane in tpu.head_lanes(tiles):
      x, v = ins.k[0, :, lane], tpu.keep(valid, ins.v[0, :, lane])
      dkv = (dkv_scr[h] * options.scale).astype(dtype)
      dk = nt(v, dkv)
      if options.normalize:
        dk += dz_scr[h] * options.scale
      outs.dk[0, :, lane] = tpu.keep(valid, dk * dphi(x)).astype(dtype)
      dv = nn(phi(x).astype(dtype), dkv)
      outs.dv[0, :, lane] = tpu.keep(valid, dv).astype(dtype)


def _valid(ins, block, tiles):
  mask_R = None if ins.mask is None else ins.mask[0, 0]
  return tpu.valid(mask_R, block * tiles.rows, tiles.rows, tiles)


def _norm(q_RxDh, z_1xDh, options):
  """phi(q) . z + eps as [rows, 1]."""
  norm = jnp.sum(q_RxDh.astype(jnp.float32) * z_1xDh, axis=1, keepdims=True)
  return norm + options.eps
