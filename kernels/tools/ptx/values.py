"""Integer arithmetic of PTX, for the 32 lanes of a warp.

A value is an int (equal in all lanes), a uint64 array [32], or None (unknown).
Arguments and results of all functions are unsigned, below 2^bits.
"""

import operator

import numpy as np

LANES = 32


def wrap(x, bits):
  """Returns the low bits of any integer or integer array."""
  mask = (1 << bits) - 1
  if isinstance(x, np.ndarray):
    return x.astype(np.uint64) & np.uint64(mask)
  return int(x) & mask


def signed(x, bits):
  """Interprets a value as two's complement: int or int64 array."""
  if isinstance(x, np.ndarray):
    up = np.uint64(64 - bits)
    return (x << up).astype(np.int64) >> np.int64(64 - bits)
  return x - (1 << bits) if x >> (bits - 1) else x


def lanes(x):
  """Returns a known value as an array [32]."""
  return np.broadcast_to(np.asarray(x, np.uint64), (LANES,))


def plain(x):
  """Returns an int if all lanes are equal, else x."""
  if isinstance(x, np.ndarray) and (x == x[0]).all():
    return int(x[0])
  return x


def _numbers(is_signed, bits, *x):
  """Returns operands, as signed numbers if `is_signed`."""
  return [signed(v, bits) if is_signed else v for v in x]


def binary(name, is_signed, bits, a, b):
  """Computes add, sub, mul (low half), and, or, xor, min, max, div, rem."""
  if name in ('min', 'max', 'div', 'rem'):
    a, b = _numbers(is_signed, bits, a, b)
    return wrap(_ORDERED[name](a, b), bits)
  return wrap(_WRAPPING[name](a, b), bits)


def wide_product(is_signed, bits, a, b):
  """Computes the whole product, which has 2 * bits bits."""
  a, b = _numbers(is_signed, bits, a, b)
  return wrap(a * b, 2 * bits)


def shift(name, is_signed, bits, a, by):
  """Computes shl, shr; shifting by `bits` or more leaves only the sign."""
  if isinstance(a, np.ndarray) or isinstance(by, np.ndarray):
    a, by = lanes(a), lanes(by)
    most = np.minimum(by, np.uint64(63))
  else:
    most = min(by, 63)
  if name == 'shr' and is_signed:
    most = most.astype(np.int64) if isinstance(most, np.ndarray) else most
    return wrap(signed(a, bits) >> most, bits)
  moved = a << most if name == 'shl' else a >> most
  if isinstance(by, np.ndarray):
    return wrap(np.where(by < bits, moved, 0), bits)
  return wrap(moved, bits) if by < bits else 0


def field(is_signed, bits, a, start, length):
  """Computes bfe: `length` bits from bit `start` on; both are ints."""
  length = min(length, bits - min(start, bits))
  if length == 0:
    return 0
  x = wrap(a >> start, length)
  return wrap(signed(x, length), bits) if is_signed else x


def logic(bits, a, b, c, table):
  """Computes lop3: bit i of `table` is the result for i = bits of (a, b, c)."""
  result, full = 0, (1 << bits) - 1
  for i in range(8):
    if table >> i & 1:
      terms = (x if i >> at & 1 else x ^ full
               for x, at in ((a, 2), (b, 1), (c, 0)))
      term = full
      for x in terms:
        term = term & x
      result = result | term
  return wrap(result, bits)


def compare(name, is_signed, bits, a, b):
  """Computes eq, ne, lt, le, gt, ge; unsigned lo, ls, hi, hs."""
  a, b = _numbers(is_signed, bits, a, b)
  return _COMPARE[name](a, b)


def choose(condition, a, b):
  """Returns a if the condition holds, else b; None if it is unknown."""
  if condition is None:
    return None
  if isinstance(condition, np.ndarray):
    if a is None or b is None:
      return None
    return plain(np.where(condition, lanes(a), lanes(b)))
  return a if condition else b


def _either(condition, a, b):
  if isinstance(condition, np.ndarray):
    return np.where(condition, a, b)
  return a if condition else b


def _quotient(a, b):
  if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.maximum(np.abs(b), 1))
  sign = -1 if (a < 0) != (b < 0) else 1
  return sign * (abs(a) // max(abs(b), 1))


_WRAPPING = {'add': operator.add, 'sub': operator.sub, 'mul': operator.mul,
             'and': operator.and_, 'or': operator.or_, 'xor': operator.xor}
_ORDERED = {'min': lambda a, b: _either(a < b, a, b),
            'max': lambda a, b: _either(a > b, a, b), 'div': _quotient,
            'rem': lambda a, b: a - b * _quotient(a, b)}
_COMPARE = {'eq': operator.eq, 'ne': operator.ne, 'lt': operator.lt,
            'le': operator.le, 'gt': operator.gt, 'ge': operator.ge,
            'lo': operator.lt, 'ls': operator.le, 'hi': operator.gt,
            'hs': operator.ge}
