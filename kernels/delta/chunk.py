"""Formulas of a chunk of the delta rules: decayed products, and an inverse.

Both are built by doubling: from blocks of s rows to blocks of 2 s rows. A pair
of rows j < i is computed when j is in the first half of a new block and i in
the second. Its decay is a product of two: from j to the end of the first half,
and from there to i. So every exponential is at most 1, nothing overflows, and
a strong decay does not make later tokens less precise.
"""

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import xla

# Axes: x chunks of all heads, or blocks of chunks; r and k kinds of rows and
# columns; i and j tokens; d channels. Chunks and heads share the axis x: XLA's
# CPU backend in jaxlib 0.10.2 crashes in matmuls with more axes.
_PAIRS = 'xrid,xkjd->xrkij'


def decayed(rows, columns, log_decay):
  """Returns decayed products of rows and columns, and `since` and `until`.

    P_ij = sum_d rows_id columns_jd exp(sum_(j < m <= i) log_decay_md),  j <= i

  rows are [X, R, C, N], columns [X, K, C, N] in the dtype of the matmuls, and P
  is float32 [X, R, K, C, C]. log_decay is float32 [X, C, N], or [X, C, 1] for
  one number in all channels, or None for no decay. `since` and `until` are the
  last `xla.doubled_sums`, None without decay.
  """
  if log_decay is None:
    return jnp.tril(xla.einsum(_PAIRS, rows, columns)), None, None
  if log_decay.shape[-1] == 1:
    one = jnp.ones_like(log_decay)[:, None]
    decays, since, until = _by_doubling(one, one, log_decay)
    return xla.einsum(_PAIRS, rows, columns) * decays, since, until
  return _by_doubling(rows, columns, log_decay)


def _by_doubling(rows, columns, log_decay):
  dtype, (count, length, _) = rows.dtype, log_decay.shape
  rows, columns = (x.astype(jnp.float32) for x in (rows, columns))
  # The product of each row with the column at its place: [X * C, R, K, 1, 1].
  out = jnp.sum(rows[:, :, None] * columns[:, None], -1)
  out = jnp.moveaxis(out, -1, 1).reshape(
      count * length, *out.shape[1:3], 1, 1)
  *levels, last = xla.doubled_sums(log_decay)
  for n, (since, until) in enumerate(levels):
    size = 1 << n
    to_end, from_start = (xla.halves(until, size)[0],
                          xla.halves(since, size)[1])
    low = _halves(_blocks(columns, size))[0] * jnp.exp(to_end)[:, None]
    high = _halves(_blocks(rows, size))[1] * jnp.exp(from_start)[:, None]
    out = _join(out, xla.einsum(_PAIRS, high.astype(dtype), low.astype(dtype)))
  return out, *last


def _blocks(x, size):
  """Cuts rows into blocks: [X, R, C, N] -> [X * C / size, R, size, N]."""
  kinds, width = x.shape[1], x.shape[-1]
  x = x.reshape(x.shape[0], kinds, -1, size, width)
  return jnp.moveaxis(x, 2, 1).reshape(-1, kinds, size, width)


def _halves(x):
  pairs = x.reshape(-1, 2, *x.shape[1:])
  return pairs[:, 0], pairs[:, 1]


def _join(diagonal, corner):
  """Returns [[top, 0], [corner, bottom]] of pairs of blocks in `diagonal`."""
  top, bottom = _halves(diagonal)
  return jnp.concatenate([
      jnp.concatenate([top, jnp.zeros_like(corner)], -1),
      jnp.concatenate([corner, bottom], -1)], -2)


@jax.custom_vjp
def inverse(lower):
  """Returns (I + A)^-1, float32, of A [X, C, C], strictly lower triangular."""
  count, size = lower.shape[:2]
  out = jnp.ones_like(lower[:, 0]).reshape(-1, 1, 1)
  step = 1
  while step < size:
    top, bottom = _halves(out)
    pairs = size // (2 * step)
    cut = lower.reshape(count, pairs, 2, step, pairs, 2, step)[:, :, 1, :, :, 0]
    corner = jnp.moveaxis(jnp.diagonal(cut, axis1=1, axis2=3), -1, 1)
    corner = corner.reshape(-1, step, step)
    out = _join(out, -_times(bottom, _times(corner, top)))
    step *= 2
  return out


def _forward(lower):
  out = inverse(lower)
  return out, out


def _backward(out, g):
  turned = jnp.swapaxes(out, -1, -2)
  return (jnp.tril(-_times(turned, _times(g, turned)), -1),)


inverse.defvjp(_forward, _backward)


def _times(a, b):
  return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
