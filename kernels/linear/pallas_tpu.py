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

SEMANTICS = ('parallel', 'parallel', 'arbitrary', 'arbitrary')


def supported(shape, dtype, interpret=None):
  """Raises NotImplementedError for what `forward` cannot take."""
  del interpret
  tpu.supported('linear', shape, dtype)


def forward(q, k, v, mask, options, save):
  """(out, (S, z) or None); see `api.linear_attention`."""
  tiles = tpu.tiling(q.shape, q.dtype)
  first, second, mask_spec, state, norm = _specs(tiles)
  has_mask = mask is not None
  b, _, h, d = q.shape
  outs = [(second, dispatch.like(q, tpu.flat(q).shape, q.dtype))]
  if save:
    outs.append((state, dispatch.like(q, (b, h, d, d), q.dtype)))
    outs.append((norm, dispatch.like(q, (b, h, d), jnp.float32)))
  kernel = functools.partial(
    _forward_kernel,
    tiles=tiles,
    options=options,
    dtype=q.dtype,
    has_mask=has_mask,
    save=save,
  )
  out, *saved = _call(
    kernel, tiles, [second, first, first] + [mask_spec] * has_mask, outs, options
  )(*map(tpu.flat, (q, k, v)), *([tpu.mask_rows(mask)] if has_mask else []))
  return out.reshape(q.shape), tuple(saved) if save else None


def backward(q, k, v, mask, saved, do, options):
  """(dq, dk, dv)."""
  tiles = tpu.tiling(q.shape, q.dtype)
  first, second, mask_spec, state, norm = _specs(tiles)
  has_mask = mask is not None
  kernel = functools.partial(
    _backward_kernel,
    tiles=tiles,
    options=options,
    dtype=q.dtype,
    has_mask=has_mask,
  )
  like = dispatch.like(q, tpu.flat(q).shape, q.dtype)
  specs = [first, second, second, first, state, norm] + [mask_spec] * has_mask
  outs = [(first, like), (second, like), (second, like)]
  grads = _call(kernel, tiles, specs, outs, options)(
    *map(tpu.flat, (q, k, v, do)),
    *saved,
    *([tpu.mask_rows(mask)] if has_mask else []),
  )
  return tuple(g.reshape(q.shape) for g in grads)


def _specs(tiles):
  """Blocks used in sweep 0, in sweep 1, of the mask, of S and of z."""
  rows, lanes, last = tiles.rows, tiles.lanes, tiles.blocks - 1
  heads, width = tiles.heads, tiles.width
  return (
    pl.BlockSpec(
      (1, rows, lanes), lambda b, g, s, n: (b, n * (1 - s) + last * s, g)
    ),
    pl.BlockSpec((1, rows, lanes), lambda b, g, s, n: (b, n * s, g)),
    pl.BlockSpec((1, 1, rows), lambda b, g, s, n: (b, 0, n)),
    pl.BlockSpec((1, heads, width, width), lambda b, g, s, n: (b, g, 0, 0)),
    pl.BlockSpec((1, heads, width), lambda b, g, s, n: (b, g, 0)),
  )


def _call(kernel, tiles, in_specs, outs, options):
  return tpu.call(
    kernel,
    grid=(tiles.batch, tiles.groups, 2, tiles.blocks),
    semantics=SEMANTICS,
    in_specs=in_specs,
    outs=outs,
    scratch=[
      (tiles.heads, tiles.width, tiles.width),
      (tiles.heads, tiles.width),
    ],
    interpret=options.interpret,
  )


def _forward_kernel(
  q_ref, k_ref, v_ref, *refs, tiles, options, dtype, has_mask, save
):
  mask_ref, refs = (refs[0], refs[1:]) if has_mask else (None, refs)
  o_ref, *saved, kv_scr, z_scr = refs
  sweep, n = pl.program_id(2), pl.program_id(3)
  nn, _, tn = tpu.products(dtype)
  phi = functools.partial(features.apply, options.feature_map)

  @pl.when((sweep == 0) & (n == 0))
  def _():
    kv_scr[...] = jnp.zeros_like(kv_scr)
    z_scr[...] = jnp.zeros_like(z_scr)

  @pl.when(sweep == 0)
  def _():
    valid = tpu.valid(mask_ref, n, tiles)
    for h, lane in tpu.head_lanes(tiles):
      k = tpu.keep(valid, phi(k_ref[0, :, lane])).astype(dtype)
      v = tpu.keep(valid, v_ref[0, :, lane])
      kv_scr[h] += tn(k, v)
      z_scr[h] += jnp.sum(k.astype(jnp.float32), axis=0)

  @pl.when(sweep == 1)
  def _():
    valid = tpu.valid(mask_ref, n, tiles)
    for h, lane in tpu.head_lanes(tiles):
      q = phi(q_ref[0, :, lane]).astype(dtype)
      o = nn(q, kv_scr[h].astype(dtype)) * options.scale
      if options.normalize:
        o = o / _norm(q, z_scr[h], options)
      o_ref[0, :, lane] = tpu.keep(valid, o).astype(dtype)

  if save:

    @pl.when((sweep == 1) & (n == 0))
    def _():
      saved[0][0] = kv_scr[...].astype(dtype)
      saved[1][0] = z_scr[...]


def _backward_kernel(
  q_ref, k_ref, v_ref, do_ref, kv_ref, z_ref, *refs, tiles, options, dtype,
  has_mask,
):  # fmt: skip
  mask_ref, refs = (refs[0], refs[1:]) if has_mask else (None, refs)
  dq_ref, dk_ref, dv_ref, dkv_scr, dz_scr = refs
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
    valid = tpu.valid(mask_ref, n, tiles)
    for h, lane in tpu.head_lanes(tiles):
      x = tpu.keep(valid, q_ref[0, :, lane])
      do = tpu.keep(valid, do_ref[0, :, lane])
      q, kv = phi(x).astype(dtype), kv_ref[0, h]
      dq = nt(do, kv)
      if options.normalize:
        # Divide the float32 products, not their bf16 operand do: one
        # rounding less in dq and in dkv.
        norm = _norm(q, z_ref[0, h], options)
        num = jnp.sum(do.astype(jnp.float32) * nn(q, kv), axis=1, keepdims=True)
        dnorm = tpu.keep(valid, -num / (norm * norm))
        dq = dq / norm + dnorm * z_ref[0, h]
        dz_scr[h] += jnp.sum(q * dnorm, axis=0)
        q = tpu.keep(valid, phi(x) / norm).astype(dtype)
      dq = tpu.keep(valid, dq * dphi(x)) * options.scale
      dq_ref[0, :, lane] = dq.astype(dtype)
      dkv_scr[h] += tn(q, do)

  @pl.when(sweep == 1)
  def _():
    valid = tpu.valid(mask_ref, n, tiles)
    for h, lane in tpu.head_lanes(tiles):
      x, v = k_ref[0, :, lane], tpu.keep(valid, v_ref[0, :, lane])
      dkv = (dkv_scr[h] * options.scale).astype(dtype)
      dk = nt(v, dkv)
      if options.normalize:
        dk += dz_scr[h] * options.scale
      dk_ref[0, :, lane] = tpu.keep(valid, dk * dphi(x)).astype(dtype)
      dv = nn(phi(x).astype(dtype), dkv)
      dv_ref[0, :, lane] = tpu.keep(valid, dv).astype(dtype)


def _norm(q_RxDh, z_Dh, options):
  """phi(q) . z + eps as [rows, 1]."""
  norm = jnp.sum(q_RxDh.astype(jnp.float32) * z_Dh, axis=1, keepdims=True)
  return norm + options.eps
