"""Operations of the TPU kernels of linear attention on a block of rows."""

import dataclasses
import functools

import jax.numpy as jnp

from lra.kernels import tpu
from lra.kernels.linear import features


@dataclasses.dataclass(frozen=True)
class Steps(tpu.Steps):
  """Operations on a block of the sequence, for all kernels.

  kv, z, dkv, dz are references of float32 sums, [heads, Dh or 1, Dh].
  """

  def phi(self, x):
    return features.apply(self.options.feature_map, x)

  def slope(self, x):
    return features.slope(self.options.feature_map, x)

  def sums(self, ins, block, kv, z):
    """Forward: adds the block's keys and values to S and z."""
    valid = self._valid(ins, block)
    _, _, tn = tpu.products(self.dtype)
    for h in self.heads():
      k = tpu.keep(valid, self.phi(self.read(ins, 1, h))).astype(self.dtype)
      kv[h] += tn(k, tpu.keep(valid, self.read(ins, 2, h)))
      if self.options.normalize:
        z[h] += jnp.sum(k.astype(jnp.float32), axis=0, keepdims=True)

  def outputs(self, ins, outs, block, kv, z):
    valid = self._valid(ins, block)
    nn, _, _ = tpu.products(self.dtype)
    for h in self.heads():
      q = self.phi(self.read(ins, 0, h)).astype(self.dtype)
      o = nn(q, kv[h].astype(self.dtype)) * self.options.scale
      if self.options.normalize:
        o = o / self._norm(q, z[h])
      outs.o[0, :, self.lane(h)] = tpu.keep(valid, o).astype(self.dtype)

  def queries(self, ins, outs, block, sums, store=True):
    """Backward: writes dq; adds to dS and dz, both without the scale.

    `store` False skips dq; `sums` is (dkv, dz), or None to skip them.
    """
    valid = self._valid(ins, block)
    nn, nt, tn = tpu.products(self.dtype)
    for h in self.heads():
      x = tpu.keep(valid, self.read(ins, 0, h))
      do = tpu.keep(valid, ins.do[0, :, self.lane(h)])
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
        self.write(outs, 0, h, dq)

  def finish(self, sums, gradients):
    """Backward: scales dS and dz, adds the final state's gradients."""
    for ref, last in zip(sums, gradients, strict=True):
      total = ref[...] * self.options.scale
      ref[...] = total if last is None else total + last[0]

  def keys(self, ins, outs, block, dkv, dz):
    valid = self._valid(ins, block)
    _, nt, _ = tpu.products(self.dtype)
    for h in self.heads():
      v = tpu.keep(valid, self.read(ins, 2, h))
      dk = nt(v, dkv[h].astype(self.dtype))
      if self.options.normalize:
        dk += dz[h]
      dk = tpu.keep(valid, dk * self.slope(self.read(ins, 1, h)))
      self.write(outs, 1, h, dk)

  def values(self, ins, outs, block, dkv):
    valid = self._valid(ins, block)
    nn, _, _ = tpu.products(self.dtype)
    for h in self.heads():
      k = self.phi(self.read(ins, 1, h)).astype(self.dtype)
      dv = nn(k, dkv[h].astype(self.dtype))
      self.write(outs, 2, h, tpu.keep(valid, dv))

  def _valid(self, ins, block):
    tiles = self.tiles
    mask_R = None if ins.mask is None else ins.mask[0, 0]
    return tpu.valid(mask_R, block * tiles.rows, tiles.rows, tiles)

  def _norm(self, q_RxDh, z_1xDh):
    norm = jnp.sum(q_RxDh.astype(jnp.float32) * z_1xDh, axis=1, keepdims=True)
    return norm + self.options.eps


def plan(inputs, options):
  tiles = tpu.tiling(inputs.shape, inputs.dtype)
  packed = inputs.packed and not tpu.by_columns(inputs, tiles)
  return Steps(tiles, options, inputs.dtype, packed)


def pair(state, options):
  """Splits a public state into S and z [B, H, 1, Dh]; missing parts are None.
  """
  if state is None:
    return None, None
  if not options.normalize:
    return state, None
  return state[0], state[1][:, :, None]


def unpaired(kv, z, options):
  return (kv, z[:, :, 0]) if options.normalize else kv


def call(steps, kernel, ins, outs, *, grid, semantics, products):
  """Calls `tpu.call` with scratch memory; `products` times B L H Dh Dh."""
  t = steps.tiles
  tokens = t.batch * t.length * t.num_heads * t.width
  return tpu.call(
      functools.partial(kernel, steps=steps), ins, outs, grid=grid,
      semantics=semantics,
      scratch=[(t.heads, t.width, t.width), (t.heads, 1, t.width)],
      interpret=steps.options.interpret, flops=2 * products * tokens * t.width,
      transcendentals=products * tokens * (steps.options.feature_map == 'elu1'))
