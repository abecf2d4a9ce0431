"""Sums of log decays, products of tokens with decays, and triangular systems.

A chunk is a block of tokens, [X, C, ...]: X counts the chunks of all heads. No
exponential exceeds 1, and none loses precision by a strong decay: a sum has two
parts, and the first is a multiple of 1/16, so that differences are exact.

Decays have no gradient of their own. A result depends on row i and its decay by
x_i exp(sums_i) alone, and on column j by x_j exp(-sums_j). So the gradient of
the sums is x dx of rows, and -x dx of columns: `tied` adds it.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import dispatch, xla

# Smallest log decay used: exp(-104) is 0 in float32.
LEAST = -104.0
BLOCK = 16  # rows of the smallest blocks, a power of two
CPU_BLOCK = 4  # a CPU takes longer for exponentials than for small matmuls
# Axes: x chunks, i and j tokens, d channels.
_PAIRS = 'xid,xjd->xij'


class Sums(NamedTuple):
  """Sums of log decays, float32 [..., C, N], from the first row on.

  N is 1 for one decay in all channels. `whole` is a multiple of 1/16, and
  `rest` at most C/32.
  """
  whole: jax.Array
  rest: jax.Array

  @classmethod
  def of(cls, g):
    rows = jnp.tril(jnp.ones((g.shape[-2],) * 2, jnp.float32))
    g = jnp.maximum(g, LEAST)
    whole = jnp.round(lax.stop_gradient(g) * 16) / 16
    product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    if g.shape[-1] == 1:  # one matmul in the place of many narrow ones
      return cls(*(product(y[..., 0], rows.T)[..., None]
                   for y in (whole, g - whole)))
    return cls(product(rows, whole), product(rows, g - whole))

  def since(self):
    """Returns the decay from the first row to each row."""
    return jnp.exp(lax.stop_gradient(self.whole + self.rest))

  def until(self):
    """Returns the decay from each row to the last row."""
    return self.last().minus(self)

  def last(self):
    return Sums(*(x[..., -1:, :] for x in self))

  def before(self):
    """Returns the sums of the rows up to i - 1."""
    return Sums(*(jnp.pad(x[..., :-1, :], [(0, 0)] * (x.ndim - 2)
                          + [(1, 0), (0, 0)]) for x in self))

  def minus(self, other):
    """Returns exp(self - other), which must be at most 1."""
    return jnp.exp(lax.stop_gradient(
        self.whole - other.whole + (self.rest - other.rest)))

  def pairs(self, other, strict):
    """Returns exp(self_i - other_j) for j <= i, or j < i, else 0."""
    whole, rest = (x[..., :, None, :] - y[..., None, :, :]
                   for x, y in zip(self, other, strict=True))
    i, j = (lax.broadcasted_iota(jnp.int32, whole.shape, whole.ndim - n)
            for n in (3, 2))
    return jnp.exp(jnp.where(i - j >= int(strict), whole + rest, -jnp.inf))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def tied(sign, x, sums):
  """Returns float32 x, which adds `sign` x dx to the gradient of the sums."""
  return x.astype(jnp.float32)


def _tied_backward(sign, saved, ct):
  x, sums = saved
  if sums is None:
    return ct.astype(x.dtype), None
  dsums = sign * x.astype(jnp.float32) * ct
  dsums = dsums.sum(-1) if sums.rest.shape[-1] == 1 else dsums
  return ct.astype(x.dtype), Sums(*2 * [dsums.reshape(sums.rest.shape)])


tied.defvjp(lambda sign, *operands: (tied(sign, *operands), operands),
            _tied_backward)


def decayed(dtype, rows, columns, at=None, sums=None, strict=False):
  """Returns the products of rows and columns with the decay between them.

    P_ij = sum_d rows_id columns_jd exp(at_id - sums_jd) for j <= i, else 0

  With `strict` P_ij is 0 for j = i as well. `dtype` is that of matmuls. rows
  and columns are [X, C, N] and `tied`, `Sums` [X, C, N], P float32 [X, C, C].
  For R heads that share rows and columns, sums are [X, R, C, 1] and P is
  [X, R, C, C]. Without decay, sums are None.
  """
  if sums is None:
    return jnp.tril(xla.einsum(_PAIRS, rows, columns, dtype), -int(strict))
  if sums.rest.ndim == 3:
    return _of_channels(strict, dtype, rows, columns, at, sums)
  decays = lax.stop_gradient(at.pairs(sums, strict)[..., 0])
  return xla.einsum(_PAIRS, rows, columns, dtype)[:, None] * decays


def _joined(strict, dtype, rows, columns, at, sums):
  block, given = BLOCK, (rows, columns, at, sums)
  if dispatch.platform() == 'cpu':
    block = CPU_BLOCK
  else:
    # Without the barrier, XLA would write the exponentials that several calls
    # share to memory: 16 for each token and channel. On a CPU this is faster.
    given = lax.optimization_barrier(given)
  r, c, i, j = jax.tree.map(
      lambda x: x.reshape(-1, min(block, x.shape[-2]), x.shape[-1]), given)
  out = (r[:, :, None] * c[:, None] * i.pairs(j, strict)).sum(-1)
  size = out.shape[-1]
  while size < rows.shape[1]:
    # From blocks of `size` rows to twice as many: rows of the second half meet
    # columns of the first, and their decays meet at the last of these columns.
    first, second = (Sums(*(_half(x, size, n) for x in y))
                     for n, y in enumerate((sums, at)))
    between = first.last()
    high = _half(rows, size, 1) * second.minus(between)
    low = _half(columns, size, 0) * between.minus(first)
    out = _join(out, xla.einsum(_PAIRS, high, low, dtype))
    size *= 2
  return out


def _of_channels_backward(strict, dtype, operands, ct):
  rows, columns, at, sums = operands
  pull = jax.vjp(lambda r, c: _joined(strict, jnp.float32, r, c, at, sums),
                 rows, columns)[1]
  return *pull(ct), None, None


_of_channels = jax.custom_vjp(_joined, nondiff_argnums=(0, 1))
_of_channels.defvjp(lambda *x: (_joined(*x), x[2:]), _of_channels_backward)


def _solved_forward(dtype, lower, beta, arrays):
  """Returns (I + A)^-1 diag(beta) y of each array y, and what to save.

  A is [X, C, C]; only entries below the diagonal count, also of its gradient.
  beta is [X, C, 1], or None for 1. The results are float32 [X, C, N].
  """
  inv = inverse(lower)
  out = tuple(_solved('xij,xjd->xid', dtype, inv, beta, y) for y in arrays)
  return out, (inv, beta, arrays, out)


def _solved_backward(dtype, saved, cts):
  inv, beta, arrays, out = saved
  # Gradients of diag(beta) y.
  turned = [_solved('xji,xjd->xid', dtype, inv, None, ct) for ct in cts]
  dlower = -sum(_times(z, jnp.swapaxes(y, -1, -2))
                for z, y in zip(turned, out, strict=True))
  dbeta = beta if beta is None else sum(
      (z * y.astype(jnp.float32)).sum(-1, keepdims=True)
      for z, y in zip(turned, arrays, strict=True))
  return dlower, dbeta, tuple(
      (z if beta is None else beta * z).astype(y.dtype)
      for z, y in zip(turned, arrays, strict=True))


solved = jax.custom_vjp(lambda *x: _solved_forward(*x)[0], nondiff_argnums=(0,))
solved.defvjp(_solved_forward, _solved_backward)


def _solved(spec, dtype, inv, beta, y):
  """Returns inv diag(beta) y, as if the matrix had twice the digits of dtype.

  If beta is above 1, entries alternate in sign, up to 4. Errors of 8 bits in
  them would let a state grow that the exact rule keeps bounded.
  """
  if dtype == jnp.float32:
    return xla.einsum(spec, inv, y if beta is None else beta * y)
  solve = inv if beta is None else inv * jnp.swapaxes(beta, -1, -2)
  high, y = xla.rounded(solve, dtype), y.astype(dtype)
  return xla.einsum(spec, high, y) + xla.einsum(spec, solve - high, y)


def inverse(lower):
  """Returns (I + A)^-1, float32, of A [X, C, C], strictly lower triangular.

  Blocks of 1, 2, 4 ... rows are joined. Up to `BLOCK` rows, the corners are
  masked and not cut out, which makes larger matmuls of fewer arrays.
  """
  count, length = lower.shape[:2]
  size = min(BLOCK, length)
  blocks = _diagonal(lower, size)
  i, j = (lax.broadcasted_iota(jnp.int32, blocks.shape, n) for n in (1, 2))
  corner = lambda n: jnp.where(
      (i // n % 2 == 1) & (j // n == i // n - 1), -blocks, 0)
  out, step = (i == j).astype(jnp.float32) + corner(1), 2
  while step < size:
    out, step = out + _times(out, _times(corner(step), out)), 2 * step
  while size < length:
    top, bottom = (out.reshape(-1, 2, size, size)[:, n] for n in (0, 1))
    cut = _diagonal(lower, 2 * size)[:, size:, :size]
    out = _join(out, -_times(bottom, _times(cut, top)))
    size *= 2
  return out.reshape(count, length, length)


def _times(a, b):
  return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _half(x, size, which):
  """Returns one half of each block of 2 `size` rows, [X, size, N]."""
  return x.reshape(-1, 2, size, x.shape[-1])[:, which]


def _diagonal(x, size):
  """Returns the blocks on the diagonal, [X * C / size, size, size]."""
  count = x.shape[-1] // size
  parts = [x[:, n * size:(n + 1) * size, n * size:(n + 1) * size]
           for n in range(count)]
  return jnp.stack(parts, 1).reshape(-1, size, size)


def _join(diagonal, corner):
  """Returns [[top, 0], [corner, bottom]] of pairs of blocks in `diagonal`."""
  size = diagonal.shape[-1]
  top, bottom = (diagonal.reshape(-1, 2, size, size)[:, n] for n in (0, 1))
  place = lambda x, i, j: jnp.pad(x, [(0, 0), (i, size - i), (j, size - j)])
  return place(top, 0, 0) + place(corner, size, 0) + place(bottom, size, size)
