"""Building blocks of the Triton kernels: blocks of rows, matmuls.

A program (CTA) works on blocks of rows of one head. Arrays are viewed in two
dimensions: rows of tokens [B L, H Dh], or [B L, 3 H Dh] if q, k and v are one
array. A head is a range of columns, so nothing is transposed, copied or padded
in memory. Triton needs powers of two. Columns beyond Dh and rows beyond the end
of a sequence are 0 when loaded, and are not stored.

Matmuls of bfloat16 sum in float32 on tensor cores. For float32 operands,
Pallas turns `lax.Precision.HIGHEST` into Triton's "ieee" (multiply-add, no
tensor core). It turns DEFAULT and HIGH into a single TF32 matmul (ten bits).
Both hold in jax 0.10 and 0.12. So float32 matmuls here use
`lax.DotAlgorithmPreset.TF32_TF32_F32_X3`: every operand is split into two TF32
numbers, and three matmuls leave an error of about 2^-21. The interpreter splits
operands in the same way, so that it has the same errors.
"""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt


def padded(width):
  """Returns the power of two that a width is rounded up to in a kernel."""
  return max(16, 1 << (width - 1).bit_length())


@dataclasses.dataclass(frozen=True)
class Tools:
  """Matmuls inside a kernel.

  `simulate`: a CPU's interpreter runs it; `exact`: float32 operands are split.
  """
  simulate: bool
  exact: bool = True

  def dot(self, a, b, turn_a=False, turn_b=False):
    """Returns a @ b in float32; `turn_a` and `turn_b` transpose an operand."""
    if not self.simulate:
      split = lax.DotAlgorithmPreset.TF32_TF32_F32_X3
      exact = self.exact and a.dtype == jnp.float32
      return _dot(a, b, turn_a, turn_b, split if exact else None)
    dot = functools.partial(_dot, turn_a=turn_a, turn_b=turn_b,
                            precision=lax.Precision.HIGHEST)
    if a.dtype != jnp.float32:
      # Exact in float32; XLA's CPU backend lacks some bf16 matmuls.
      return dot(a.astype(jnp.float32), b.astype(jnp.float32))
    (a, a_rest), (b, b_rest) = _split(a), _split(b)
    if not self.exact:
      return dot(a, b)
    return dot(a_rest, b) + dot(a, b_rest) + dot(a, b)


def _dot(a, b, turn_a, turn_b, precision):
  dims = ((0 if turn_a else 1,), (1 if turn_b else 0,)), ((), ())
  return lax.dot_general(a, b, dims, precision=precision,
                         preferred_element_type=jnp.float32)


def _split(x):
  """Splits x into the sum of two TF32 numbers, rounded half away from 0."""
  def short(x):
    bits = lax.bitcast_convert_type(x, jnp.uint32) + jnp.uint32(0x1000)
    bits = bits & jnp.uint32(0xFFFFE000)
    return lax.bitcast_convert_type(bits, jnp.float32)

  return short(x), short(x - short(x))


@dataclasses.dataclass(frozen=True)
class Shape:
  """Static sizes of a call.

  Attributes:
    batch, length, heads, width: B, L, H, Dh.
    packed: whether q, k and v are one array.
    rows, columns: of a block; columns of values only, if not all.
  """
  batch: int
  length: int
  heads: int
  width: int
  packed: bool
  rows: int
  columns: int

  @property
  def lanes(self):
    return padded(self.width)

  @property
  def blocks(self):
    """Returns the number of blocks of rows."""
    return -(-self.length // self.rows)

  @property
  def column_blocks(self):
    return -(-self.width // self.columns)


SLOTS = {'q': 0, 'k': 1, 'v': 2}


@dataclasses.dataclass(frozen=True)
class Place:
  """Position (b, h), traced, of a program: loads and stores its blocks."""
  shape: Shape
  b: object
  h: object

  def valid(self, mask_ref, n):
    """Returns bool [rows], the valid tokens of block n; None if all are."""
    shape = self.shape
    inside = None
    if shape.length % shape.rows:
      inside = _iota(shape.rows) < shape.length - n * shape.rows
    if mask_ref is None:
      return inside
    tokens = mask_ref.at[pl.ds(self._row(n), shape.rows)]
    if inside is None:
      return plt.load(tokens)
    return plt.load(tokens, mask=inside, other=False)

  def load(self, ref, n, valid, name='', block=None):
    """Loads rows of block n, 0 if invalid: [rows, lanes or columns].

    `name` is 'q', 'k' or 'v', or any other if the array is separate. `block` is
    (first, number) of columns, or None for all.
    """
    view, mask = self._view(ref, n, valid, name, block)
    return _load(view, mask)

  def store(self, ref, n, valid, x, name='', block=None):
    """Writes rows of block n; invalid rows become 0."""
    if valid is not None:
      x = jnp.where(valid[:, None], x, 0.0)
    inside = None
    if self.shape.length % self.shape.rows:
      left = self.shape.length - n * self.shape.rows
      inside = _iota(self.shape.rows) < left
    view, mask = self._view(ref, n, inside, name, block)
    plt.store(view, x.astype(ref.dtype), mask=mask)

  def _row(self, n):
    return self.b * self.shape.length + n * self.shape.rows

  def _view(self, ref, n, valid, name, block):
    shape = self.shape
    slot = SLOTS.get(name, 0) if shape.packed else 0
    first, size, lanes = self._columns(block)
    first = (slot * shape.heads + self.h) * shape.width + first
    view = ref.at[pl.ds(self._row(n), shape.rows), pl.ds(first, size)]
    return view, _both(valid, lanes)

  def load_state(self, ref, index, rows=None, columns=None):
    """Loads `rows` and `columns` (see `load`'s block) of state `index`."""
    view, mask = self._state(ref, index, rows, columns)
    return _load(view, mask)

  def store_state(self, ref, index, x, rows=None, columns=None):
    view, mask = self._state(ref, index, rows, columns)
    plt.store(view, x.astype(ref.dtype), mask=mask)

  def _state(self, ref, index, rows, columns):
    first, size, inside = self._columns(rows)
    left, width, lanes = self._columns(columns)
    top = index * self.shape.width + first
    return ref.at[pl.ds(top, size), pl.ds(left, width)], _both(inside, lanes)

  def load_row(self, ref, index, block=None):
    """Loads row `index` of [N, Dh]: [lanes], or a block of columns."""
    return _load(*self._vector(ref, index, block))

  def store_row(self, ref, index, x, block=None):
    view, mask = self._vector(ref, index, block)
    plt.store(view, x.astype(ref.dtype), mask=mask)

  def _vector(self, ref, index, block=None):
    first, size, lanes = self._columns(block)
    return ref.at[index, pl.ds(first, size)], lanes

  def _columns(self, block):
    """Returns (first, number, bool of existing ones or None) of columns."""
    first, size = block or (0, self.shape.lanes)
    if self.shape.width % size == 0:
      return first, size, None
    # Jax 0.12 refuses a slice that it knows to leave the array.
    first = first + self.b * 0
    return first, size, _iota(size) < self.shape.width - first


def _both(rows, columns):
  """Combines masks to bool, broadcastable to [R, C]; None if all are valid."""
  if rows is None or columns is None:
    return (columns[None] if rows is None and columns is not None
            else (None if rows is None else rows[:, None]))
  return rows[:, None] & columns[None]


def _load(view, mask):
  if mask is None:
    return plt.load(view)
  mask = jnp.broadcast_to(mask, view.shape)
  return plt.load(view, mask=mask, other=0.0)


def _iota(size):
  return lax.broadcasted_iota(jnp.int32, (size,), 0)


def zeros(*shape):
  return jnp.zeros(shape, jnp.float32)


def settled(x, n):
  """Returns x [R, C], computed from loaded values, so that it is computed once.

  Triton computes the elementwise function of a load again in the layout of each
  operand that uses it, in all warps. A value that differs by row in between
  prevents this: here a select that always takes x. n >= 0 is traced.
  """
  return keep(_iota(x.shape[0]) + n >= 0, x)


def keep(valid, x):
  """Returns x with 0 in rows that are not valid."""
  return x if valid is None else jnp.where(valid[:, None], x, 0.0)


@dataclasses.dataclass(frozen=True)
class Plan:
  """Static parameters of a kernel, with the operation's options.

  Attributes:
    parts, per_part: number of parts of L, and blocks of rows in a part (the
      last may have fewer).
  """
  shape: Shape
  parts: int
  per_part: int
  options: Any
  tools: Tools

  def over_columns(self, step, carry=0):
    """Runs step(block, carry) -> carry on each block of columns, None if one.
    """
    size = self.shape.columns
    if self.shape.column_blocks == 1:
      return step(None, carry)
    return lax.fori_loop(0, self.shape.column_blocks,
                         lambda i, carry: step((i * size, size), carry), carry)


class Walk:
  """Position of a program, and its loop over the blocks of its part.

  Attributes:
    at: Place.
    pair, part: number of the (b, h), and of the part among those of all pairs.
    first, steps: first block of the part, and number of blocks.
    block: block of columns, None if there is only one.
  """

  def __init__(self, plan, by_columns=False):
    shape = plan.shape
    h, part, b = (pl.program_id(axis) for axis in range(3))
    self.block = None
    if by_columns and shape.column_blocks > 1:
      block = lax.rem(h, jnp.int32(shape.column_blocks))
      self.block = block * shape.columns, shape.columns
      h = lax.div(h, jnp.int32(shape.column_blocks))
    self.at = Place(shape, b, h)
    self.pair = b * shape.heads + h
    self.part = self.pair * plan.parts + part
    self.first = part * plan.per_part
    self.steps = plan.per_part
    if shape.blocks % plan.per_part:
      self.steps = jnp.minimum(self.steps, shape.blocks - self.first)

  def run(self, step, carry, reverse=False):
    """Runs step(n, again, carry) -> carry on every block n of rows.

    `again` equals n, but Triton does not know this. So it recomputes the store
    address of a block loaded some steps before and does not keep it.
    """
    start, to = self.first, 1
    if reverse:
      start, to = self.first + self.steps - 1, -1

    def body(t, carry):
      again, carry = carry
      return again + to, step(start + to * t, again, carry)

    return lax.fori_loop(0, self.steps, body, (start, carry))[1]
