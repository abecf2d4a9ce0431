"""Operations of the TPU kernels of linear attention on a block of rows."""

import dataclasses
import functools

import jax.numpy as jnp

from lra.kernels import tpu
from lra.kernels.linear import features


@dataclasses.dataclass(frozen=True)
class Steps:
  """Operations on a block, for all kernels.

  `ins` and `outs` are the references of a kernel (`lra.kernels.tpu.call`); an
  operation uses those that it needs. `block` is the number of the block in its
  sequence. kv, z, dkv, dz are references of float32 sums: [heads, Dh, Dh] and
  [heads, 1, Dh].

  Attributes:
    tiles, options: `lra.kernels.tpu.Tiling`, `LinearOptions`.
    dtype: dtype of q, k and v.
    rows: whether a block holds whole packed rows of q, k and v, and a block of
      results whole rows of their gradients. This is so if H * Dh is no multiple
      of a register's width.
  """
  tiles: tpu.Tiling
  options: object
  dtype: object
  rows: bool = False

  def of(self, which, lane):
    """Returns the lanes of q, k or v (0, 1, 2) in its block."""
    first = which * self.tiles.lanes if self.rows else 0
    return slice(first + lane.start, first + lane.stop)

  def phi(self, x):
    return features.apply(self.options.feature_map, x)

  def slope(self, x):
    return features.slope(self.options.feature_map, x)

  def start(self, sums, state):
    """Sets sums to 0, or to the blocks of `state`."""
    for ref, first in zip(sums, state, strict=True):
      ref[...] = jnp.zeros_like(ref) if first is None else first[0]

  def sums(self, ins, block, kv, z):
    """Forward: adds the block's keys and values to S and z."""
    valid = self._valid(ins, block)
    _, _, tn = tpu.products(self.dtype)
    for h, lane in tpu.head_lanes(self.tiles):
      k = tpu.keep(valid,
                   self.phi(ins.k[0, :, self.of(1, lane)])).astype(self.dtype)
      kv[h] += tn(k, tpu.keep(valid, ins.v[0, :, self.of(2, lane)]))
      if self.options.normalize:
        z[h] += jnp.sum(k.astype(jnp.float32), axis=0, keepdims=True)

  def outputs(self, ins, outs, block, kv, z):
    """Forward: writes the block's outputs."""
    valid = self._valid(ins, block)
    nn, _, _ = tpu.products(self.dtype)
    for h, lane in tpu.head_lanes(self.tiles):
      q = self.phi(ins.q[0, :, self.of(0, lane)]).astype(self.dtype)
      o = nn(q, kv[h].astype(self.dtype)) * self.options.scale
      if self.options.normalize:
        o = o / self._norm(q, z[h])
      outs.o[0, :, lane] = tpu.keep(valid, o).astype(self.dtype)

  def queries(self, ins, outs, block, sums, store=True):
    """Backward: writes dq; adds to dS and dz, both without the scale.

    `store` False skips dq; `sums` is (dkv, dz), or None to skip them.
    """
    valid = self._valid(ins, block)
    nn, nt, tn = tpu.products(self.dtype)
    for h, lane in tpu.head_lanes(self.tiles):
      x = tpu.keep(valid, ins.q[0, :, self.of(0, lane)])
      do = tpu.keep(valid, ins.do[0, :, lane])
      q, kv = self.phi(x).astype(self.dtype), ins.kv[0, h]
      dq = nt(do, kv)
      if self.options.normalize:
        # Divide the float32 results of matmuls, not their bf16 operand do: dq
        # and dkv are then rounded once less.
        norm = self._norm(q, ins.z[0, h])
        num = jnp.sum(do.astype(jnp.float32) * nn(q, kv), axis=1, keepdims=True)
        dnorm = tpu.keep(valid, -num / (norm * norm))
        dq = dq / norm + dnorm * ins.z[0, h]
        if sums is not None:
          sums[1][h] += jnp.sum(q * dnorm, axis=0, keepdims=True)
        q = tpu.keep(valid, self.phi(x) / norm).astype(self.dtype)
      if sums is not None:
        sums[0][h] += tn(q, do)
      if store:
        dq = tpu.keep(valid, dq * self.slope(x)) * self.options.scale
        self._store(outs, 0, lane, dq)

  def finish(self, sums, gradients):
    """Backward: multiplies dS and dz by the scale, adds the final gradients.

    The results are also the gradients of the initial state.
    """
    for ref, last in zip(sums, gradients, strict=True):
      total = ref[...] * self.options.scale
      ref[...] = total if last is None else total + last[0]

  def keys(self, ins, outs, block, dkv, dz):
    """Backward: writes dk."""
    valid = self._valid(ins, block)
    _, nt, _ = tpu.products(self.dtype)
    for h, lane in tpu.head_lanes(self.tiles):
      v = tpu.keep(valid, ins.v[0, :, self.of(2, lane)])
      dk = nt(v, dkv[h].astype(self.dtype))
      if self.options.normalize:
        dk += dz[h]
      dk = tpu.keep(valid, dk * self.slope(ins.k[0, :, self.of(1, lane)]))
      self._store(outs, 1, lane, dk)

  def values(self, ins, outs, block, dkv):
    """Backward: writes dv."""
    valid = self._valid(ins, block)
    nn, _, _ = tpu.products(self.dtype)
    for h, lane in tpu.head_lanes(self.tiles):
      k = self.phi(ins.k[0, :, self.of(1, lane)]).astype(self.dtype)
      dv = nn(k, dkv[h].astype(self.dtype))
      self._store(outs, 2, lane, tpu.keep(valid, dv))

  def _store(self, outs, which, lane, grad):
    """Stores a rounded gradient; adds it, unrounded, to the bias's gradient."""
    ref = getattr(outs, ('dq', 'dk', 'dv')[which])
    ref[0, :, self.of(which, lane)] = grad.astype(self.dtype)
    if outs.bias is not None:
      row = slice(which, which + 1)
      outs.bias[0, row, lane] += jnp.sum(grad, axis=0, keepdims=True)

  def _valid(self, ins, block):
    tiles = self.tiles
    mask_R = None if ins.mask is None else ins.mask[0, 0]
    return tpu.valid(mask_R, block * tiles.rows, tiles.rows, tiles)

  def _norm(self, q_RxDh, z_1xDh):
    """Returns phi(q) . z + eps as [rows, 1]."""
    norm = jnp.sum(q_RxDh.astype(jnp.float32) * z_1xDh, axis=1, keepdims=True)
    return norm + self.options.eps


def plan(inputs, options):
  """Returns the `Steps` of a call, forward and backward."""
  tiles = tpu.tiling(inputs.shape, inputs.dtype)
  rows = inputs.packed and not tpu.by_columns(inputs, tiles)
  return Steps(tiles, options, inputs.dtype, rows and tiles.parts == 1)


def operands(steps, inputs, q, k, v, row):
  """Returns name -> (BlockSpec, array) of q, k, v for `lra.kernels.tpu.call`.

  `q`, `k`, `v` and `row` map grid indices to a block (b, g, n): of each array,
  or of whole packed rows if `steps.rows`.
  """
  if steps.rows:
    return {'q k v': (steps.tiles.row(row), tpu.flat(inputs.arrays[0]))}
  arrays = tpu.columns(inputs, steps.tiles)
  return {
      name: (steps.tiles.tile(where, first), x)
      for name, where, (x, first) in zip('qkv', (q, k, v), arrays, strict=True)}


def pair(state, options):
  """Splits a public state into S [B, H, Dh, Dh] and z [B, H, 1, Dh].

  Parts that the state lacks are None.
  """
  if state is None:
    return None, None
  if not options.normalize:
    return state, None
  return state[0], state[1][:, :, None]


def unpaired(kv, z, options):
  """Inverts `pair`."""
  return (kv, z[:, :, 0]) if options.normalize else kv


def call(steps, kernel, ins, outs, *, grid, semantics, products):
  """Calls `lra.kernels.tpu.call` with scratch memory for S and z.

  `products` is the work of the kernel in units of B L H Dh Dh multiplications.
  """
  t = steps.tiles
  tokens = t.batch * t.length * t.num_heads * t.width
  return tpu.call(
      functools.partial(kernel, steps=steps), ins, outs, grid=grid,
      semantics=semantics,
      scratch=[(t.heads, t.width, t.width), (t.heads, 1, t.width)],
      interpret=steps.options.interpret, flops=2 * products * tokens * t.width,
      transcendentals=products * tokens * (steps.options.feature_map == 'elu1'),
      aliases=[('grads', 'dq dk dv')] if 'grads' in ins else [])
