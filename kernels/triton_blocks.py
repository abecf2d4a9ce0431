"""What the bodies of the Triton kernels share: blocks of rows, products.

A program (CTA) works on blocks of rows of one head. Its arrays are seen in two
dimensions, rows of tokens [B L, H Dh] or, where q, k and v are one array,
[B L, 3 H Dh], and a head is a range of columns: nothing is transposed, copied
or padded in memory. Triton wants powers of two: columns behind Dh and rows
behind the end of a sequence are neither loaded (they are 0) nor stored.

Products of bfloat16 sum in float32 on tensor cores. Of float32 operands, Pallas
makes Triton's "ieee" of `lax.Precision.HIGHEST` (multiply-add, no tensor core)
and a single TF32 product (ten bits) of DEFAULT and HIGH, in jax 0.10 and 0.12
alike. So float32 products here ask for
`lax.DotAlgorithmPreset.TF32_TF32_F32_X3`: every operand is split in two TF32
numbers, and three products leave an error of about 2^-21. Interpreted, a
product splits its operands in the same way, so that the errors found are those
of the split.
"""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt


def padded(width):
  """The power of two that a width is rounded up to inside a kernel."""
  return max(16, 1 << (width - 1).bit_length())


@dataclasses.dataclass(frozen=True)
class Tools:
  """Products of matrices.

  Attributes:
    simulate: for the interpreter on a CPU.
    exact: float32 operands are split; else rounded to TF32.
  """

  simulate: bool
  exact: bool = True

  def dot(self, a, b, turn_a=False, turn_b=False):
    """a @ b in float32, of the transposed operands where asked for."""
    if not self.simulate:
      split = lax.DotAlgorithmPreset.TF32_TF32_F32_X3
      exact = self.exact and a.dtype == jnp.float32
      return _dot(a, b, turn_a, turn_b, split if exact else None)
    dot = functools.partial(
      _dot, turn_a=turn_a, turn_b=turn_b, precision=lax.Precision.HIGHEST
    )
    if a.dtype != jnp.float32:
      # Exact in float32, and XLA's CPU backend lacks some bf16 products.
      return dot(a.astype(jnp.float32), b.astype(jnp.float32))
    (a, a_rest), (b, b_rest) = _split(a), _split(b)
    if not self.exact:
      return dot(a, b)
    return dot(a_rest, b) + dot(a, b_rest) + dot(a, b)


def _dot(a, b, turn_a, turn_b, precision):
  dims = ((0 if turn_a else 1,), (1 if turn_b else 0,)), ((), ())
  return lax.dot_general(
    a, b, dims, precision=precision, preferred_element_type=jnp.float32
  )


def _split(x):
  """x as the sum of two TF32 numbers, rounded half away from 0."""

  def short(x):
    bits = lax.bitcast_convert_type(x, jnp.uint32) + jnp.uint32(0x1000)
    bits = bits & jnp.uint32(0xFFFFE000)
    return lax.bitcast_convert_type(bits, jnp.float32)

  return short(x), short(x - short(x))


@dataclasses.dataclass(frozen=True)
class Shape:
  """The static numbers of a call.

  Attributes:
    batch, length, heads, width: B, L, H, Dh.
    packed: q, k and v are one array.
    rows: of a block.
    columns: of a block of values, where a program does not take them all.
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
    """Blocks of rows."""
    return -(-self.length // self.rows)

  @property
  def column_blocks(self):
    return -(-self.width // self.columns)


SLOTS = {'q': 0, 'k': 1, 'v': 2}


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a program works: loads and stores of blocks of one (b, h).

  Attributes:
    shape: Shape.
    b, h: traced.
  """

  shape: Shape
  b: object
  h: object

  def valid(self, mask_ref, n):
    """bool [rows]: tokens of block n that count; None where all do."""
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
    """Rows of block n, 0 where they do not count: [rows, lanes or columns].

    Args:
      ref: in two dimensions.
      n: the block of rows.
      valid: what `valid` gave.
      name: 'q', 'k' or 'v', or another of an array of its own.
      block: of columns, (the first, how many), or None for all.
    """
    view, mask = self._view(ref, n, valid, name, block)
    return _load(view, mask)

  def store(self, ref, n, valid, x, name='', block=None):
    """Writes rows of block n: 0 for those that do not count."""
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
    """Rows and columns, each as `load`'s block, of state `index`."""
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
    """Row `index` of [N, Dh]: [lanes], or a block of columns."""
    return _load(*self._vector(ref, index, block))

  def store_row(self, ref, index, x, block=None):
    view, mask = self._vector(ref, index, block)
    plt.store(view, x.astype(ref.dtype), mask=mask)

  def _vector(self, ref, index, block=None):
    first, size, lanes = self._columns(block)
    return ref.at[index, pl.ds(first, size)], lanes

  def _columns(self, block):
    """(first, how many, bool for those that exist or None) of columns."""
    first, size = block or (0, self.shape.lanes)
    if self.shape.width % size == 0:
      return first, size, None
    # Jax 0.12 refuses a slice that it can see to leave the array.
    first = first + self.b * 0
    return first, size, _iota(size) < self.shape.width - first


def _both(rows, columns):
  """bool [R, C] or something that broadcasts to it; None where all count."""
  if rows is None or columns is None:
    return (
      columns[None]
      if rows is None and columns is not None
      else (None if rows is None else rows[:, None])
    )
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
  """x, a function of what was loaded, made once.

  Triton makes what follows a load elementwise in the layout of every operand
  that it ends in, each time anew and for all warps, unless something that
  differs by row comes in between: here a choice that always falls on x.

  Args:
    x: [R, C].
    n: >= 0, traced.
  """
  return keep(_iota(x.shape[0]) + n >= 0, x)


def keep(valid, x):
  """x, with 0 in the rows that do not count."""
  return x if valid is None else jnp.where(valid[:, None], x, 0.0)


@dataclasses.dataclass(frozen=True)
class Plan:
  """The static numbers of a kernel.

  Attributes:
    shape: Shape.
    parts, per_part: of L, and the blocks of rows in one (the last may have
      fewer).
    options: of the operation.
    tools: Tools.
  """

  shape: Shape
  parts: int
  per_part: int
  options: Any
  tools: Tools

  def over_columns(self, step, carry=0):
    """step(block, carry) -> carry for every block of columns; None if one."""
    size = self.shape.columns
    if self.shape.column_blocks == 1:
      return step(None, carry)
    return lax.fori_loop(
      0,
      self.shape.column_blocks,
      lambda i, carry: step((i * size, size), carry),
      carry,
    )


class Walk:
  """The place of a program, and its walk over the blocks of its part.

  Attributes:
    at: Place.
    pair: number of the (b, h).
    part: number of the part among all of all pairs.
    first, steps: the first block of the part, and how many there are.
    block: of columns, None where there is one.
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
    """step(n, again, carry) -> carry for every block n of rows.

    `again` is n too. Triton does not know it, and so computes where to store
    what it loaded some steps before, rather than keep the addresses.
    """
    start, to = self.first, 1
    if reverse:
      start, to = self.first + self.steps - 1, -1

    def body(t, carry):
      again, carry = carry
      return again + to, step(start + to * t, again, carry)

    return lax.fori_loop(0, self.steps, body, (start, carry))[1]
