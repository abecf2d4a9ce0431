"""Softmax attention in tiles, without the [B, H, L, S] weights.

Forward: for each block of queries a scan over the blocks of keys carries the
running maximum, normaliser and output (Milakov & Gimelshein 2018, arXiv
1805.02867; Rabe & Staats 2021, arXiv 2112.05682). Backward: the weights of a
tile are recomputed from the saved log-sum-exp (Dao et al. 2022, arXiv
2205.14135, Algorithm 4). The batch axis is never merged with another, so it may
stay sharded.

N query blocks of I rows, M key blocks of J rows; L queries, S keys.
"""

import functools
from collections.abc import Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels import axes, dispatch, meshes, random_bits
from lra.kernels.softmax import distances
from lra.kernels.xla import precision, rows_first

# Most rows and columns of a tile on a CPU, and of the smallest tile elsewhere.
# Its float32 logits then take 1 MiB per head.
# For four heads in total and L 2,000, smaller tiles took longer on two cores.
# On one core, tiles of half or a quarter the size took two thirds of the time.
BLOCK = 512
CACHED = 2**20  # bytes of logits that a core's cache holds
# Bytes of a tile's logits on an accelerator. Gradients need four such arrays.
# XLA writes them to memory, so that few large tiles cost fewest launches.
LARGE = 2**28
# Logit of a masked key: smaller than any real logit, but finite, so that
# subtracting it gives no NaN.
_LEAST = jnp.finfo(jnp.float32).min
# A log-sum-exp above this is rounded too coarsely for gradients.
_LARGE = 1e4


class _Options(NamedTuple):
  """Static parameters; `impl` is the random generator of dropout's key."""
  scale: float
  rate: float
  impl: Hashable


def supported(shape, dtype, **needs):
  del shape, dtype, needs  # every call is supported


def forward(inputs, options, save):
  """Computes random words of dropout for each tile, and again for gradients.

  G groups of examples come one after another.
  """
  del save
  q, k, v, mask, bias, key = inputs
  if mask is None:
    mask = jnp.ones(k.shape[:2], bool)
  impl = words = None
  if options.dropout_rate:
    impl = jax.random.key_impl(key)
    words = jax.random.key_data(axes.keys(key, len(q)))
  length, keys = q.shape[1], k.shape[1]
  count, rows, cols = _cuts(q.shape, keys, bias is not None)
  if words is not None:
    words = words.reshape(count, -1, *words.shape[1:])
  if bias is not None:
    bias = jnp.pad(bias, ((0, 0), (-length % rows, -keys % cols)))
  out_GxNxBxHxIxDv = _attend(
      _Options(options.scale, options.dropout_rate, impl),
      _blocks(q, count, rows).swapaxes(3, 4),
      _blocks(k, count, cols).swapaxes(3, 4),
      _blocks(v, count, cols).swapaxes(3, 4), _blocks(mask, count, cols), words,
      bias)
  out_GxBxNxIxHxDv = out_GxNxBxHxIxDv.transpose(0, 2, 1, 4, 3, 5)
  return out_GxBxNxIxHxDv.reshape(len(q), -1, *v.shape[2:])[:, :length], None


def _cuts(shape, keys, biased):
  """Returns the number of groups of examples, and rows and columns of a tile.

  A tile has all examples of a group. There are as few groups as keep its
  logits within a limit, but only one if a mesh splits the batch. A CPU has
  small tiles. On an accelerator a tile has all queries and keys, or is cut if
  the logits of a group exceed the limit.
  """
  batch, length, heads, _ = shape
  rows, cols, limit = length, keys, LARGE
  whole = bool(meshes.free(jax.sharding.get_abstract_mesh()))
  cpu = dispatch.platform() == 'cpu'
  if cpu:
    # A bias is held for one block of queries and all keys. Blocks of half the
    # size need half of that memory. It is expanded only once for all examples.
    rows = block_size(length, -(-BLOCK // 2) if biased else BLOCK)
    cols, limit, whole = block_size(keys, BLOCK), CACHED, whole or biased
  cells = limit // (4 * heads)
  count = 1 if whole else next(
      n for n in range(1, batch + 1) if batch % n == 0 and (
          batch // n * rows * cols <= cells or n == batch))
  if not cpu:
    cells //= batch // count
    cols = block_size(keys, max(BLOCK, cells // BLOCK))
    rows = block_size(length, max(BLOCK, cells // cols))
  return count, rows, cols


def block_size(length, block):
  """Returns the smallest multiple of 8 that covers `length` in fewest blocks.
  """
  count = -(-length // block)
  return -(-length // (count * 8)) * 8


def _blocks(x_BxLx, count, size):
  """Cuts [B, L, ...] into blocks of each group: [G, N, B / G, I, ...]."""
  batch, length, *rest = x_BxLx.shape
  padding = [(0, 0), (0, -length % size)] + [(0, 0)] * len(rest)
  x_BxLx = jnp.pad(x_BxLx, padding)
  return x_BxLx.reshape(
      count, batch // count, -1, size, *rest).swapaxes(1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(options, q, k, v, mask, words, bias):
  return _forward_and_residuals(options, q, k, v, mask, words, bias)[0]


def _each_group(function, *arrays):
  """Maps over the leading axis, without a loop if there is one group."""
  if len(arrays[0]) > 1:
    return jax.lax.map(lambda arrays: function(*arrays), arrays)
  first = jax.tree.map(lambda x: x[0], arrays)
  return jax.tree.map(lambda x: x[None], function(*first))


def _dot(equation, x, y):
  equation, x, y = rows_first(equation, x, y)
  return jnp.einsum(equation, x, y, precision=precision(x.dtype),
                    preferred_element_type=jnp.float32)


def _drop(options, words, row, col, arrays, factor=1.0):
  if not options.rate:
    return arrays
  key = jax.random.wrap_key_data(words, impl=options.impl)
  batch, heads, rows, cols = arrays[0].shape
  kept_BxHxIxJ = random_bits.kept(key, batch, (heads, rows, cols), options.rate,
                                  (row * rows, col * cols))
  return [jnp.where(kept_BxHxIxJ, factor * x, 0) for x in arrays]


def _logits(scale, q_BxHxIxDh, k_BxHxJxDh, mask_BxJ, bias_HxIxJ):
  logits_BxHxIxJ = scale * _dot('bhid,bhjd->bhij', q_BxHxIxDh, k_BxHxJxDh)
  if bias_HxIxJ is not None:
    logits_BxHxIxJ += bias_HxIxJ[None]
  return jnp.where(mask_BxJ[:, None, None], logits_BxHxIxJ, -jnp.inf)


def _over_batch(x_BxHxIxJ):
  """Sums over the batch by a matmul, which a CPU computes faster."""
  return _dot('bhij,b->hij', x_BxHxIxJ,
              jnp.ones(len(x_BxHxIxJ), x_BxHxIxJ.dtype))


def _forward(options, bias_HxC, q_NxBxHxIxDh, k_MxBxHxJxDh, v_MxBxHxJxDv,
             mask_MxBxJ, words):
  """Returns the output, the log-sum-exp and its rounding error.

  The last two are float32 [N, B, H, I, 1]. The error is 0 for small logits.
  """
  dtype, width = v_MxBxHxJxDv.dtype, v_MxBxHxJxDv.shape[-1]

  def one_query_block(_, block):
    row, start, q_BxHxIxDh = block

    def one_key_block(carry, block):
      out_BxHxIxDv, max_BxHxIx1, sum_BxHxIx1 = carry
      col, k_BxHxJxDh, v_BxHxJxDv, mask_BxJ, bias_HxIxJ = block
      logits_BxHxIxJ = _logits(options.scale, q_BxHxIxDh, k_BxHxJxDh, mask_BxJ,
                               bias_HxIxJ)
      new_BxHxIx1 = jnp.maximum(max_BxHxIx1,
                                logits_BxHxIxJ.max(-1, keepdims=True))
      weights_BxHxIxJ = jnp.exp(logits_BxHxIxJ - new_BxHxIx1)
      decay_BxHxIx1 = jnp.exp(max_BxHxIx1 - new_BxHxIx1)
      (kept_BxHxIxJ,) = _drop(options, words, row, col, [weights_BxHxIxJ])
      out_BxHxIxDv = out_BxHxIxDv * decay_BxHxIx1 + _dot(
          'bhij,bhjd->bhid', kept_BxHxIxJ.astype(dtype), v_BxHxJxDv)
      sum_BxHxIx1 = sum_BxHxIx1 * decay_BxHxIx1 + weights_BxHxIxJ.sum(
          -1, keepdims=True)
      return (out_BxHxIxDv, new_BxHxIx1, sum_BxHxIx1), None

    tiles = distances.tiles(bias_HxC, start, q_BxHxIxDh, k_MxBxHxJxDh)
    rows = q_BxHxIxDh.shape[:-1]
    zero_BxHxIx1 = axes.zeros((*rows, 1), jnp.float32, q_BxHxIxDh)
    empty = (axes.zeros((*rows, width), jnp.float32, q_BxHxIxDh),
             zero_BxHxIx1 + _LEAST, zero_BxHxIx1)
    (out_BxHxIxDv, max_BxHxIx1, sum_BxHxIx1), _ = jax.lax.scan(
        one_key_block, empty,
        (cols_M, k_MxBxHxJxDh, v_MxBxHxJxDv, mask_MxBxJ, tiles))
    # If all keys are masked, sum and output are 0. Else the sum is at least 1.
    sum_BxHxIx1 = jnp.where(sum_BxHxIx1 == 0, 1, sum_BxHxIx1)
    out_BxHxIxDv /= sum_BxHxIx1 * (1.0 - options.rate)
    log_BxHxIx1 = jnp.log(sum_BxHxIx1)
    lse_BxHxIx1 = max_BxHxIx1 + log_BxHxIx1
    lacks_BxHxIx1 = jnp.where(jnp.abs(lse_BxHxIx1) > _LARGE,
                              (max_BxHxIx1 - lse_BxHxIx1) + log_BxHxIx1, 0)
    return None, (out_BxHxIxDv.astype(dtype), lse_BxHxIx1, lacks_BxHxIx1)

  rows_N, cols_M = map(jnp.arange, (len(q_NxBxHxIxDh), len(k_MxBxHxJxDh)))
  blocks = (rows_N, distances.starts(q_NxBxHxIxDh), q_NxBxHxIxDh)
  return jax.lax.scan(one_query_block, None, blocks)[1]


def _forward_and_residuals(options, q, k, v, mask, words, bias):
  arrays = q, k, v, mask, words
  sums = _each_group(functools.partial(_forward, options, bias), *arrays)
  return sums[0], (arrays + sums, bias)


def _gradients(options, residuals, g):
  arrays, bias = residuals
  dq, dk, dv, dbias = _each_group(
      functools.partial(_backward, options, bias), *arrays, g)
  return dq, dk, dv, None, None, None if bias is None else dbias.sum(0)


def _backward(options, bias_HxC, q_NxBxHxIxDh, k_MxBxHxJxDh, v_MxBxHxJxDv,
              mask_MxBxJ, words, out, lse, lacks, g_NxBxHxIxDv):
  scale = options.scale
  # The recomputed weights are exp(lacks) times too large. Gradients are linear
  # in g, so correct g instead.
  g_NxBxHxIxDv *= jnp.exp(-lacks).astype(g_NxBxHxIxDv.dtype)
  # sum_j weights_ij dweights_ij, which is out_i . dout_i
  inner_NxBxHxIx1 = _dot('nbhid,nbhid->nbhi', g_NxBxHxIxDv, out)[..., None]

  def one_query_block(sums, block):
    *dkv, dbias_HxC = sums
    row, start, q_BxHxIxDh, g_BxHxIxDv, lse_BxHxIx1, inner_BxHxIx1 = block

    def one_key_block(carry, block):
      dq_BxHxIxDh, dk_MxBxHxJxDh, dv_MxBxHxJxDv = carry
      col, k_BxHxJxDh, v_BxHxJxDv, mask_BxJ, bias_HxIxJ = block
      weights_BxHxIxJ = jnp.exp(_logits(scale, q_BxHxIxDh, k_BxHxJxDh, mask_BxJ,
                                        bias_HxIxJ) - lse_BxHxIx1)
      kept_BxHxIxJ, dweights_BxHxIxJ = _drop(
          options, words, row, col,
          [weights_BxHxIxJ, _dot('bhid,bhjd->bhij', g_BxHxIxDv, v_BxHxJxDv)],
          1.0 / (1.0 - options.rate))
      dlogits_BxHxIxJ = weights_BxHxIxJ * (dweights_BxHxIxJ - inner_BxHxIx1)
      dbias_HxIxJ = None if bias_HxIxJ is None else _over_batch(dlogits_BxHxIxJ)
      dlogits_BxHxIxJ = (scale * dlogits_BxHxIxJ).astype(k_BxHxJxDh.dtype)
      dq_BxHxIxDh += _dot('bhij,bhjd->bhid', dlogits_BxHxIxJ, k_BxHxJxDh)
      dk_MxBxHxJxDh = dk_MxBxHxJxDh.at[col].add(
          _dot('bhij,bhid->bhjd', dlogits_BxHxIxJ, q_BxHxIxDh))
      dv_MxBxHxJxDv = dv_MxBxHxJxDv.at[col].add(
          _dot('bhij,bhid->bhjd', kept_BxHxIxJ.astype(g_BxHxIxDv.dtype),
               g_BxHxIxDv))
      return (dq_BxHxIxDh, dk_MxBxHxJxDh, dv_MxBxHxJxDv), dbias_HxIxJ

    tiles = distances.tiles(bias_HxC, start, q_BxHxIxDh, k_MxBxHxJxDh)
    (dq_BxHxIxDh, *dkv), dtiles = jax.lax.scan(
        one_key_block,
        (axes.zeros(q_BxHxIxDh.shape, jnp.float32, q_BxHxIxDh), *dkv),
        (cols_M, k_MxBxHxJxDh, v_MxBxHxJxDv, mask_MxBxJ, tiles))
    sums = (*dkv, distances.add_tiles(dbias_HxC, start, dtiles))
    return sums, dq_BxHxIxDh.astype(q_BxHxIxDh.dtype)

  zeros = (axes.zeros(k_MxBxHxJxDh.shape, jnp.float32, k_MxBxHxJxDh),
           axes.zeros(v_MxBxHxJxDv.shape, jnp.float32, v_MxBxHxJxDv),
           None if bias_HxC is None
           else axes.zeros(bias_HxC.shape, bias_HxC.dtype, bias_HxC))
  starts = distances.starts(q_NxBxHxIxDh)
  rows_N, cols_M = map(jnp.arange, (len(q_NxBxHxIxDh), len(k_MxBxHxJxDh)))
  (dk_MxBxHxJxDh, dv_MxBxHxJxDv, dbias_HxC), dq_NxBxHxIxDh = jax.lax.scan(
      one_query_block, zeros,
      (rows_N, starts, q_NxBxHxIxDh, g_NxBxHxIxDv, lse, inner_NxBxHxIx1))
  return (dq_NxBxHxIxDh, dk_MxBxHxJxDh.astype(k_MxBxHxJxDh.dtype),
          dv_MxBxHxJxDv.astype(v_MxBxHxJxDv.dtype), dbias_HxC)


_attend.defvjp(_forward_and_residuals, _gradients)
