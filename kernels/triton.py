"""Checks, calls and building blocks of Triton kernels, for GPUs since Ampere.

JAX has deprecated this backend of Pallas since 0.12, so `setup.cfg` keeps JAX
below 0.13, the first release that may lack it. Without the backend, importing
this file fails, and `dispatch` reports this and takes plain XLA, which is
slower. New kernels for GPUs are written for Mosaic GPU, as in `hopper.py`.

A program (CTA) works on blocks of rows of one head. Arrays are viewed as
[B L, H Dh], or [B L, 3 H Dh] if packed: a head is a range of columns, and
nothing is transposed, copied or padded in memory. Columns beyond Dh (Triton
needs powers of two) and rows beyond the end are loaded as 0 and not stored.

Pallas turns `lax.Precision.HIGHEST` of float32 matmuls into multiply-adds, the
others into one TF32 matmul (ten bits). So float32 matmuls here use
`lax.DotAlgorithmPreset.TF32_TF32_F32_X3`: every operand is split into two TF32
numbers, and three matmuls leave an error of about 2^-21.
"""

import dataclasses
import functools
import math
import types
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from lra.kernels import checks, dispatch
from lra.kernels.dispatch import local_gpu as _local_gpu

WIDTHS = range(16, 257)
CAPABILITY = 8.0  # Ampere: bfloat16 and TF32 tensor cores, asynchronous copies
LEAST = 256  # minimum number of rows in a part
CORES = 108  # multiprocessors of an A100, if the device is unknown


def supported(shape):
  """Raises NotImplementedError for q of a shape that kernels cannot take."""
  if shape[-1] not in WIDTHS:
    raise NotImplementedError('pallas_triton supports head widths Dh (last '
                              f'dimension of q, k, v) from {WIDTHS[0]} to '
                              f'{WIDTHS[-1]}, got {shape[-1]}')
  check()


def check(*dtypes):
  """Raises NotImplementedError for an unsupported dtype or too old a device."""
  for dtype in dtypes:
    if jnp.dtype(dtype).name not in checks.DTYPES:
      raise NotImplementedError(f'pallas_triton does not support {dtype}')
  if dispatch.interpret_params() is None and dispatch.target_is_local():
    _check_device()


def _check_device():
  device = _local_gpu()
  capability = getattr(device, 'compute_capability', None)
  try:
    good = float(capability) >= CAPABILITY
  except (TypeError, ValueError):
    good = False
  if not good:
    raise NotImplementedError('pallas_triton needs an NVIDIA device of compute '
                              f'capability {CAPABILITY} or above, got '
                              f'{capability or jax.default_backend()}')


def cores():
  abstract = jax.sharding.get_abstract_mesh().abstract_device
  count = getattr(abstract, 'num_cores', None)
  if count is None and dispatch.target_is_local():
    count = getattr(_local_gpu(), 'core_count', None)
  return count or CORES


def cut(length, pairs, rows, per_core):
  """Returns (parts of L, blocks per part) that make programs fill the device.

  It takes the fewest parts that use the multiprocessors at least 95% as well as
  the best number. A part must have enough rows to outweigh its float32 state.
  It has `pairs` programs, of which a multiprocessor runs `per_core` at once.
  """
  blocks, slots = -(-length // rows), per_core * cores()

  def use(parts):
    waves = -(-pairs * parts // slots)
    return pairs * blocks / (waves * slots * -(-blocks // parts))

  most = max(1, min(length // LEAST, 2 * -(-slots // pairs)))
  best = max(map(use, range(1, most + 1)))
  parts = next(n for n in range(1, most + 1) if use(n) >= 0.95 * best)
  per_part = -(-blocks // parts)
  return -(-blocks // per_part), per_part


def flat(x):
  """Flattens to [B L, H Dh] or, for packed arrays, [B L, 3 H Dh]."""
  return None if x is None else x.reshape(x.shape[0] * x.shape[1], -1)


def rows(x):
  return x.reshape(-1, x.shape[-1])


def qkv(inputs):
  arrays = tuple(map(flat, inputs.arrays))
  return arrays * 3 if inputs.packed else arrays


def call(name, kernel, ins, outs, *, grid, warps, stages, interpret, alias=(),
         **parameters):
  """Runs a kernel; returns name -> array or None, for every output.

  Args:
    name: name shown in profilers.
    kernel: function of two namespaces of references, inputs and outputs (None
      if absent), and of `parameters`.
    ins, outs: name -> array, name -> (shape, dtype); or None.
    grid: sizes of up to three axes; programs that differ only in the first run
      next to each other.
    warps, stages: warps of a program; stages of the loops that load operands.
    interpret: None to compile.
    alias: (name of an input, name of the output that takes its memory) or ().
  """
  in_names = [n for n, x in ins.items() if x is not None]
  out_names = [n for n, x in outs.items() if x is not None]
  like = functools.partial(dispatch.like, ins[in_names[0]])

  def body(*refs):
    found = dict(zip(in_names + out_names, refs, strict=True))
    # An aliased input has no reference: the output's name refers to it.
    kernel(types.SimpleNamespace(**{n: found.get(n) for n in ins}),
           types.SimpleNamespace(**{n: found.get(n) for n in outs}),
           **parameters)

  body.__name__ = name
  aliases = {}
  if alias:
    aliases = {in_names.index(alias[0]): out_names.index(alias[1])}
  results = pl.pallas_call(
      body, out_shape=[like(*outs[n]) for n in out_names], grid=grid,
      compiler_params=plt.CompilerParams(num_warps=warps, num_stages=stages),
      input_output_aliases=aliases, interpret=interpret is not None,
      name=name)(*(ins[n] for n in in_names))
  found = dict(zip(out_names, results, strict=True))
  return {n: found.get(n) for n in outs}


def run(name, kernel, plan, inputs, ins, outs, **options):
  """Runs `call` on arrays flattened to two dimensions, with mask and slopes."""
  mask = None if inputs.mask is None else inputs.mask.reshape(-1)
  found = call(name, kernel,
               {**{n: x if x is None else rows(x) for n, x in ins.items()},
                'mask': mask, 'slopes': inputs.slopes},
               {n: x if x is None else ((math.prod(x[0][:-1]), x[0][-1]), x[1])
                for n, x in outs.items()},
               interpret=plan.options.interpret, plan=plan, **options)
  return {n: x if x is None else x.reshape(outs[n][0])
          for n, x in found.items()}


def padded(width):
  """Returns the power of two that a width is rounded up to in a kernel."""
  return max(16, 1 << (width - 1).bit_length())


@dataclasses.dataclass(frozen=True)
class Tools:
  """Matmuls in a kernel; `exact` splits float32 operands into two TF32 numbers.
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
      # float32 is exact here; XLA's CPU backend lacks some bf16 matmuls.
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
  """Sizes of a call and a block; attention cuts only columns of values."""
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
    """Returns bool [rows], the valid tokens of block n; None: all are valid."""
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
    """Loads a tile of state `index`; `rows`, `columns` are blocks of `load`."""
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
    first, size = block or (0, self.shape.lanes)
    if self.shape.width % size == 0:
      return first, size, None
    # Jax 0.12 refuses a slice if it knows that the slice leaves the array.
    first = first + self.b * 0
    return first, size, _iota(size) < self.shape.width - first


def _both(rows, columns):
  """Combines masks [R] and [C] to [R, C]; None means that all are valid."""
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
  """Returns x [R, C] in a form that Triton computes only once.

  x is an elementwise function of loaded values. Triton would compute it again
  in the layout of each operand that uses it, in all warps. A select by rows
  prevents this; here it always takes x.
  """
  return keep(_iota(x.shape[0]) + n >= 0, x)


def keep(valid, x):
  return x if valid is None else jnp.where(valid[:, None], x, 0.0)


@dataclasses.dataclass(frozen=True)
class Plan:
  """Parameters of a kernel; L has `parts` of `per_part` blocks of rows."""
  shape: Shape
  parts: int
  per_part: int
  options: Any
  tools: Tools

  def over_columns(self, step, carry=0):
    """Runs step(block, carry) -> carry on each block of columns, or on None."""
    size = self.shape.columns
    if self.shape.column_blocks == 1:
      return step(None, carry)
    return lax.fori_loop(0, self.shape.column_blocks,
                         lambda i, carry: step((i * size, size), carry), carry)


class Walk:
  """Position of a program, and its loop over the blocks of its part.

  `pair` and `part` number the (b, h) and the parts of all pairs.
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
