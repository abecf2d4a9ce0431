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
    return _lower(products.einsum(_PAIRS, rows, columns)), None, None
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
  since, until = log_decay[..., None, :], jnp.zeros_like(log_decay)[..., None, :]
  while since.shape[2] > 1:
    first, second = (_halves(x) for x in (until, since))
    low = _blocks(columns, first.shape[-2])[..., 0, :, :]
    high = _blocks(rows, first.shape[-2])[..., 1, :, :]
    low = low * jnp.exp(first[..., 0, :, :])[:, :, None]
    high = high * jnp.exp(second[..., 1, :, :])[:, :, None]
    out = _join(out, products.einsum(
        _BLOCKS, high.astype(dtype), low.astype(dtype)))
    whole = second[..., -1:, :]
    since = _flat(second[..., 0, :, :], second[..., 1, :, :] + whole[..., 0, :, :])
    until = _flat(first[..., 0, :, :] + whole[..., 1, :, :], first[..., 1, :, :])
  return out[..., 0, :, :], since[:, :, 0], until[:, :, 0]


def _blocks(x, size):
  """Cuts rows into pairs of blocks: [..., C, N] -> [..., P, 2, size, N]."""
  return x.reshape(*x.shape[:-2], -1, 2, size, x.shape[-1])


def _halves(x):
  """Pairs neighbouring blocks: [..., 2 P, s, N] -> [..., P, 2, s, N]."""
  return x.reshape(*x.shape[:-3], -1, 2, *x.shape[-2:])


def _flat(first, second):
  """Joins halves [..., P, s, N] to blocks [..., P, 2 s, N]."""
  return jnp.concatenate([first, second], -2)


def _join(diagonal, corner):
  """Joins blocks [..., 2 P, s, s] and [..., P, s, s] below the diagonal."""
  pair = _halves(diagonal)
  top, bottom = pair[..., 0, :, :], pair[..., 1, :, :]
  return jnp.concatenate([
      jnp.concatenate([top, jnp.zeros_like(corner)], -1),
      jnp.concatenate([corner, bottom], -1)], -2)


def _lower(x):
  """Sets entries above the diagonal to 0."""
  i = jnp.arange(x.shape[-1])
  return jnp.where(i[:, None] >= i, x, 0)


@jax.custom_vjp
def inverse(lower):
  """Returns (I + A)^-1 in float32 for A [B, H, C, C], 0 for j >= i."""
  size = lower.shape[-1]
  out = jnp.ones_like(lower[..., :1, None])
  step = 1
  while step < size:
    pairs = _halves(out)
    cut = lower.reshape(*lower.shape[:2], size // (2 * step), 2, step,
                        size // (2 * step), 2, step)
    corner = jnp.moveaxis(
        jnp.diagonal(cut[:, :, :, 1, :, :, 0], axis1=2, axis2=4), -1, 2)
    corner = _times(pairs[..., 1, :, :], _times(corner, pairs[..., 0, :, :]))
    out, step = _join(out, -corner), 2 * step
  return out[:, :, 0]


def _forward(lower):
  out = inverse(lower)
  return out, out


def _backward(out, g):
  turned = jnp.swapaxes(out, -1, -2)
  size = jnp.arange(out.shape[-1])
  grad = -_times(turned, _times(g, turned))
  return (jnp.where(size[:, None] > size, grad, 0),)


inverse.defvjp(_forward, _backward)


def _times(a, b):
  return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
