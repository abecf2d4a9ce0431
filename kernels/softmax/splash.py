"""Softmax attention by JAX's Pallas TPU kernel, `splash_attention`.

It needs heads before the length, so q, k and v are transposed; in a layer the
compiler lets the projections write this layout. It needs lengths in whole
blocks, so shorter ones are padded, by at most 127 rows for each block of up to
512. It has no dropout. Its mask consists of segment ids: queries and unmasked
keys have id 1, masked keys 0.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from lra.kernels import dispatch
from lra.kernels.softmax.distances import refuse

# Sizes whose backward blocks of keys and queries, in float32, still fit the
# on-chip memory of a v5e: (largest block, widest head).
BLOCKS = ((512, 256), (256, 512))
_LANES = 128


def supported(shape, dtype, value_width=None, dropout_rate=0.0, bias=False):
  refuse('splash', bias, dropout_rate)
  if jnp.dtype(dtype) not in (jnp.float32, jnp.bfloat16):
    raise NotImplementedError("kernel='splash' supports float32 and bfloat16, "
                              f"got {jnp.dtype(dtype)}")
  width = max(shape[-1], value_width or 0)
  if width > BLOCKS[-1][1]:
    raise NotImplementedError("kernel='splash' supports heads up to "
                              f"{BLOCKS[-1][1]} wide, got {width}")


def forward(inputs, options, save):
  """Raises inside a `jax.shard_map` that checks `vma`."""
  del save
  q, k, v, mask, *_ = inputs
  width = max(q.shape[-1], v.shape[-1])
  block_q, block_k = (block_size(x.shape[1], width) for x in (q, k))
  scaled = (q.astype(jnp.float32) * options.scale).astype(q.dtype)
  queries = _heads_first(scaled, block_q)
  keys, values = (_heads_first(x, block_k) for x in (k, v))
  ids = None
  if mask is not None or keys.shape[2] > k.shape[1]:
    ids = jnp.ones(k.shape[:2], bool) if mask is None else mask
    ids = jnp.pad(ids, [(0, 0), (0, keys.shape[2] - k.shape[1])])
    ids = ids.astype(jnp.int32)
  out = _attend(block_q, block_k, queries, keys, values, ids)
  out = out[:, :, : q.shape[1]].swapaxes(1, 2)
  if mask is None:
    return out, None
  # Without any key, splash attention weighs all keys equally.
  return jnp.where(mask.any(1)[:, None, None, None], out, 0), None


def block_size(length, width):
  """Returns the smallest multiple of 128 covering `length` in fewest blocks."""
  largest = next(rows for rows, widest in BLOCKS if width <= widest)
  count = -(-length // largest)
  return -(-length // (count * _LANES)) * _LANES


def _heads_first(x_BxLxHxD, block):
  padding = -x_BxLxHxD.shape[1] % block
  x_BxHxLxD = x_BxLxHxD.swapaxes(1, 2)
  return jnp.pad(x_BxHxLxD, [(0, 0), (0, 0), (0, padding), (0, 0)])


# The backward kernels are traced when gradients are taken, outside the
# precision context of the forward pass. So a custom_vjp sets their precision.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(block_q, block_k, q_BxHxLxDh, k_BxHxSxDh, v_BxHxSxDv, ids_BxS):
  with _precision(q_BxHxLxDh.dtype):
    return _batched(block_q, block_k, ids_BxS, q_BxHxLxDh, k_BxHxSxDh,
                    v_BxHxSxDv)


def _pulled(block_q, block_k, q_BxHxLxDh, k_BxHxSxDh, v_BxHxSxDv, ids_BxS):
  with _precision(q_BxHxLxDh.dtype):
    return jax.vjp(functools.partial(_batched, block_q, block_k, ids_BxS),
                   q_BxHxLxDh, k_BxHxSxDh, v_BxHxSxDv)


def _backward(block_q, block_k, pull, g_BxHxLxDv):
  with _precision(g_BxHxLxDv.dtype):
    return *pull(g_BxHxLxDv), None


_attend.defvjp(_pulled, _backward)


def _batched(block_q, block_k, ids_BxS, q_BxHxLxDh, k_BxHxSxDh, v_BxHxSxDv):
  heads, length = q_BxHxLxDh.shape[1:3]
  keys = k_BxHxSxDh.shape[2]
  attend = splash.make_splash_mha_single_device(
      splash.MultiHeadMask([splash.FullMask((length, keys))] * heads),
      block_sizes=splash.BlockSizes(block_q=block_q, block_kv=block_k,
                                    block_q_dkv=block_q, block_kv_dkv=block_k,
                                    block_q_dq=block_q, block_kv_dq=block_k),
      interpret=dispatch.interpret_params() or False)

  def one(q_HxLxDh, k_HxSxDh, v_HxSxDv, ids_S):
    if ids_S is None:
      return attend(q_HxLxDh, k_HxSxDh, v_HxSxDv)
    ids = splash.SegmentIds(jnp.ones(length, jnp.int32), ids_S)
    return attend(q_HxLxDh, k_HxSxDh, v_HxSxDv, segment_ids=ids)

  return jax.vmap(one)(q_BxHxLxDh, k_BxHxSxDh, v_BxHxSxDv, ids_BxS)


def _precision(dtype):
  """Returns a context that keeps float32 matmuls from rounding to bfloat16."""
  if dtype == jnp.float32:
    return jax.default_matmul_precision('highest')
  return contextlib.nullcontext()
