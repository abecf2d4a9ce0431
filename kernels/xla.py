"""Parts of the kernels in plain XLA: matmuls, masks, and cuts of a sequence."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import dispatch

MOST_ROWS = 512  # longest axis of matmuls that `rows_first` changes


def precision(dtype):
  """Returns a matmul precision: full for float32 operands, else the default."""
  return (lax.Precision.HIGHEST if dtype == jnp.float32
          else lax.Precision.DEFAULT)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def einsum(spec, a, b, dtype=None):
  """Computes jnp.einsum of two arrays with float32 sums.

  Operands are rounded to `dtype`, by default to the narrower of their dtypes.
  The result is float32. Its gradient is rounded like the operands, so that
  matmuls of the backward pass have the same dtypes; gradients of float32
  operands are not rounded. No index may occur in one operand alone.
  """
  dtype = dtype or min(a.dtype, b.dtype, key=lambda x: x.itemsize)
  prec, a, b = precision(dtype), a.astype(dtype), b.astype(dtype)
  if dispatch.platform() == 'cpu':
    # XLA's CPU backend lacks bf16 matmuls with float32 sums for some layouts.
    # Products of two bf16 numbers are exact in float32: the result is equal.
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    spec, a, b = rows_first(spec, a, b)
  return jnp.einsum(spec, a, b, precision=prec,
                    preferred_element_type=jnp.float32)


def _forward(spec, a, b, dtype):
  return einsum(spec, a, b, dtype), (a, b)


def _backward(spec, dtype, operands, ct):
  a, b = operands
  left, right, out = spec.replace('->', ',').split(',')
  dtype = dtype or min(a.dtype, b.dtype, key=lambda x: x.itemsize)
  da = einsum(f'{out},{right}->{left}', ct, b, dtype)
  db = einsum(f'{left},{out}->{right}', a, ct, dtype)
  return da.astype(a.dtype), db.astype(b.dtype)


einsum.defvjp(_forward, _backward)


def rows_first(spec, a, b):
  """Returns the spec and arrays of an equal einsum, for a CPU in better order.

  There the left array is that whose kept axes come first in the result, and its
  axes are batch, kept, summed: a CPU computes many small matmuls three times as
  fast in this order. The barrier keeps XLA from undoing it. Large matmuls gain
  nothing, so their axes stay.
  """
  if dispatch.platform() != 'cpu':
    return spec, a, b
  left, right, out = spec.replace('->', ',').split(',')
  own = [i for i in out if i not in left or i not in right]
  if own and own[0] in right:
    left, right, a, b = right, left, b, a
  order = ''.join(sorted(
      left, key=lambda i: 2 * (i not in out) + (i not in right)))
  rows = max((n for i, n in zip(left, a.shape, strict=True)
              if i not in right or i not in out), default=0)
  if order == left or rows > MOST_ROWS:
    return f'{left},{right}->{out}', a, b
  a = lax.optimization_barrier(a.transpose([left.index(i) for i in order]))
  return f'{order},{right}->{out}', a, b


def written(x):
  """Returns x, which a CPU writes to memory once, and so its gradient.

  Otherwise XLA computes cheap operations again for each that reads them, even
  transposes and exponentials, and in the order of the reader's memory.
  """
  return lax.optimization_barrier(x) if dispatch.platform() == 'cpu' else x


def keep(mask_BxL, x):
  """Returns x [B, L, ...] with 0 at masked tokens, where x may be NaN."""
  if mask_BxL is None:
    return x
  shape = *mask_BxL.shape, *(1,) * (x.ndim - 2)
  return jnp.where(mask_BxL.reshape(shape), x, 0)


def rounded(x, dtype):
  """Returns float32 x rounded to `dtype`, which XLA may not undo."""
  form = jnp.finfo(dtype)
  return lax.reduce_precision(x, form.nexp, form.nmant)


def weighed(x, factor):
  """Returns x times float32 factors, rounded to the dtype of x."""
  return (x.astype(jnp.float32) * factor).astype(x.dtype)


class Segments(NamedTuple):
  """A sequence in `count` segments of `size` tokens, in chunks of `chunk`.

  A loop over segments keeps temporary memory independent of L. Within a segment
  all chunks are computed at once.
  """
  count: int
  size: int
  chunk: int

  @classmethod
  def of(cls, length, chunk, most):
    """Cuts into even segments of at most `most` tokens."""
    count = -(-length // most)
    return cls(count, -(-length // (count * chunk)) * chunk, chunk)

  def pad(self, *arrays):
    extra = self.count * self.size - arrays[0].shape[1]
    return [jnp.pad(x, [(0, 0), (0, extra)] + [(0, 0)] * (x.ndim - 2))
            for x in arrays]

  def read(self, arrays, n):
    return [lax.dynamic_slice_in_dim(x, n * self.size, self.size, 1)
            for x in arrays]

  def write(self, arrays, n, parts):
    return [lax.dynamic_update_slice_in_dim(x, p, n * self.size, 1)
            for x, p in zip(arrays, parts, strict=True)]


def states_before(factor_BxNxE, total_BxNxE, state_BxE, reverse):
  """Returns the states before parts that turn s into factor s + total."""
  first = -1 if reverse else 0
  total = total_BxNxE.at[:, first].add(factor_BxNxE[:, first] * state_BxE)

  def join(p, q):
    return p[0] * q[0], q[0] * p[1] + q[1]

  after = lax.associative_scan(
      join, (factor_BxNxE, total), axis=1, reverse=reverse)[1]
  parts = [state_BxE[:, None], after[:, :-1]]
  if reverse:
    parts = [after[:, 1:], state_BxE[:, None]]
  return jnp.concatenate(parts, axis=1)
