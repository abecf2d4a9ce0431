"""Formulas of a chunk of the delta rules: decayed products, and an inverse.

Both are built by doubling: from blocks of s rows to blocks of 2 s. A pair of
rows j < i is then joined where a first half meets a second half, through the
row between them. So each exponential is of a sum of log decays, at most 1, and
no difference of two sums is taken: nothing overflows, and a strong decay costs
no precision of the tokens after it.
"""

import jax
import jax.numpy as jnp
from jax import lax

from kernels import products

# Axes: B a batch of chunks, H heads, R and K kinds of rows and columns, i and j
# tokens, d channels.
_PAIRS = 'bhrid,bhkjd->bhrkij'
_BLOCKS = 'bhrpid,bhkpjd->bhrkpij'


def decayed(rows, columns, log_decay):
  """Returns products of rows and columns, and decays from and to the ends.

    P_ij = sum_d rows_id columns_jd exp(sum_(j < m <= i) log_decay_md),  j <= i

  Args:
    rows: [B, H, R, C, N] in the dtype of the matmuls; C is a power of 2.
    columns: [B, H, K, C, N].
    log_decay: float32 [B, H, C, N], or [B, H, C, 1] for one number in all
      channels, or None for no decay.

  Returns:
    P: float32 [B, H, R, K, C, C], 0 for j > i.
    since, until: float32 [B, H, C, N or 1]: sum of the log decays from the
      start of the chunk to row i, with it, and from row i, without it, to the
      end. None without decay.
  """
  if log_decay is None:
    return jnp.tril(products.einsum(_PAIRS, rows, columns)), None, None
  if log_decay.shape[-1] == 1:
    one = jnp.ones_like(log_decay)[:, :, None]
    decays, since, until = _by_doubling(one, one, log_decay)
    return products.einsum(_PAIRS, rows, columns) * decays, since, until
  return _by_doubling(rows, columns, log_decay)


def _by_doubling(rows, columns, log_decay):
  dtype = rows.dtype
  rows, columns = (x.astype(jnp.float32) for x in (rows, columns))
  # of blocks of one row: [B, H, R, K, C, 1, 1]
  out = jnp.sum(rows[:, :, :, None] * columns[:, :, None], -1)[..., None, None]
  since = log_decay[..., None, :]
  until = jnp.zeros_like(since)
  while since.shape[2] > 1:
    since_low, since_high = _halves(since)
    until_low, until_high = _halves(until)
    size = since_low.shape[-2]
    low = _halves(_blocks(columns, size))[0] * jnp.exp(until_low)[:, :, None]
    high = _halves(_blocks(rows, size))[1] * jnp.exp(since_high)[:, :, None]
    out = _join(out, products.einsum(
        _BLOCKS, high.astype(dtype), low.astype(dtype)))
    all_low, all_high = (x[..., -1:, :] for x in (since_low, since_high))
    since = jnp.concatenate([since_low, all_low + since_high], -2)
    until = jnp.concatenate([until_low + all_high, until_high], -2)
  return out[..., 0, :, :], since[:, :, 0], until[:, :, 0]


def _blocks(x, size):
  """Cuts rows into blocks: [..., C, N] -> [..., C / size, size, N]."""
  return x.reshape(*x.shape[:-2], -1, size, x.shape[-1])


def _halves(x):
  """Returns the first and the second of each pair of blocks [..., P, s, N]."""
  pairs = x.reshape(*x.shape[:-3], -1, 2, *x.shape[-2:])
  return pairs[..., 0, :, :], pairs[..., 1, :, :]


def _join(diagonal, corner):
  """Joins blocks [..., 2 P, s, s] and [..., P, s, s] below the diagonal."""
  top, bottom = _halves(diagonal)
  return jnp.concatenate([
      jnp.concatenate([top, jnp.zeros_like(corner)], -1),
      jnp.concatenate([corner, bottom], -1)], -2)


@jax.custom_vjp
def inverse(lower):
  """Returns (I + A)^-1 in float32 for A [B, H, C, C], 0 for j >= i."""
  size = lower.shape[-1]
  out = jnp.ones_like(lower[..., :1, None])
  step = 1
  while step < size:
    top, bottom = _halves(out)
    cut = lower.reshape(*lower.shape[:2], size // (2 * step), 2, step,
                        size // (2 * step), 2, step)
    corner = jnp.moveaxis(
        jnp.diagonal(cut[:, :, :, 1, :, :, 0], axis1=2, axis2=4), -1, 2)
    corner = -_times(bottom, _times(corner, top))
    out, step = _join(out, corner), 2 * step
  return out[:, :, 0]


def _forward(lower):
  out = inverse(lower)
  return out, out


def _backward(out, g):
  turned = jnp.swapaxes(out, -1, -2)
  return (jnp.tril(-_times(turned, _times(g, turned)), -1),)


inverse.defvjp(_forward, _backward)


def _times(a, b):
  return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
