"""What the Pallas TPU kernels share: blocks, masks, products.

Arrays are seen as [B, L, H * Dh], which is how a projection leaves them in
memory; [B, H, L, Dh] would pad Dh 64 to the 128 lanes of a register and cost
a transpose. A block holds some rows and a group of whole heads.
"""

import dataclasses
import types

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels import chunks

WIDTHS = (8, 16, 32, 64, 128, 256)
LANES = 128
STEP = 128
MAX_LANES = 512
MAX_ROWS = 512
BLOCK_BYTES = 512 * 1024


def supported(shape, dtype):
  """Raises NotImplementedError for operands the TPU kernels cannot take."""
  width = shape[-1]
  if width not in WIDTHS:
    raise NotImplementedError(
      f'pallas_tpu supports head widths Dh (last dimension of q, k, v) '
      f'in {WIDTHS}, got {width}'
    )
  if jnp.dtype(dtype) not in (jnp.float32, jnp.bfloat16):
    raise NotImplementedError(
      f'pallas_tpu supports float32 and bfloat16 q, k, v, got {dtype}'
    )


@dataclasses.dataclass(frozen=True)
class Tiling:
  """How one operand [B, L, H * Dh] is cut; `heads` is per block."""

  batch: int
  length: int
  num_heads: int
  width: int
  heads: int
  rows: int

  @property
  def lanes(self):
    return self.heads * self.width

  @property
  def groups(self):
    return self.num_heads // self.heads

  @property
  def blocks(self):
    return -(-self.length // self.rows)

  @property
  def ragged(self):
    return self.length % self.rows != 0


def tiling(shape, dtype):
  """Blocks of at most BLOCK_BYTES, a multiple of 128 rows or all of L."""
  batch, length, num_heads, width = shape
  heads = _heads_per_block(num_heads, width)
  most = BLOCK_BYTES // (heads * width * jnp.dtype(dtype).itemsize)
  most = max(STEP, min(MAX_ROWS, most) // STEP * STEP)
  if length <= STEP:
    rows = length
  else:
    # Even blocks: 1,025 rows are three blocks of 384, not of 512.
    rows = pl.cdiv(pl.cdiv(length, pl.cdiv(length, most)), STEP) * STEP
  return Tiling(batch, length, num_heads, width, heads, rows)


def _heads_per_block(num_heads, width):
  """Whole heads that fill registers, at most MAX_LANES where that can be."""
  filling = [
    heads
    for heads in range(1, num_heads + 1)
    if num_heads % heads == 0 and heads * width % LANES == 0
  ]
  fitting = [heads for heads in filling if heads * width <= MAX_LANES]
  return (fitting[-1:] or filling[:1] or [num_heads])[0]


def flat(x_BxLxHxDh):
  """[B, L, H * Dh]; no copy where a projection made x."""
  return x_BxLxHxDh.reshape(*x_BxLxHxDh.shape[:2], -1)


def mask_rows(mask_BxL):
  """float32 [B, 1, L]: the length along the lanes, no padding to 128."""
  if mask_BxL is None:
    return None
  return mask_BxL.astype(jnp.float32)[:, None, :]


def valid(mask_R, start, rows, tiles):
  """[rows, 1] bool, True = a token that counts; None where all do.

  Args:
    mask_R: [rows] float32 of the mask, or None.
    start: the first of the rows, counted from the start of the sequence.
    rows, tiles: the number of rows; the tiling.
  """
  out = None
  if tiles.ragged:
    row = lax.broadcasted_iota(jnp.int32, (rows, 1), 0)
    out = row < tiles.length - start
  if mask_R is not None:
    token = mask_R[:, None] > 0
    out = token if out is None else out & token
  return out


def keep(valid_Rx1, x):
  """x, with 0 in the rows that do not count (they may hold NaN)."""
  return x if valid_Rx1 is None else jnp.where(valid_Rx1, x, 0)


def products(dtype):
  """a @ b, a @ b.T and a.T @ b with float32 sums."""

  def make(a_dim, b_dim):
    def dot(a, b):
      return lax.dot_general(
        a,
        b,
        (((a_dim,), (b_dim,)), ((), ())),
        precision=chunks.precision(dtype),
        preferred_element_type=jnp.float32,
      )

    return dot

  return make(1, 0), make(1, 1), make(0, 0)


def call(kernel, ins, outs, *, grid, semantics, scratch, interpret):
  """Runs a kernel whose operands and results may be absent.

  Args:
    kernel: called with two namespaces of references, inputs and outputs (None
      for what is absent), and the scratch references.
    ins: name -> (BlockSpec, array or None).
    outs: name -> (BlockSpec, jax.ShapeDtypeStruct or None).
    grid, semantics: the grid and the dimension semantics of its axes.
    scratch: shapes of float32 scratch memory.
    interpret: None to compile, else the interpreter's parameters.

  Returns:
    name -> array or None, for every output.
  """

  def body(in_refs, out_refs, *scratch_refs):
    refs = (types.SimpleNamespace(**x) for x in (in_refs, out_refs))
    kernel(*refs, *scratch_refs)

  def present(pairs):
    return {n: None if x is None else spec for n, (spec, x) in pairs.items()}

  def values(pairs):
    return {name: x for name, (_, x) in pairs.items()}

  return pl.pallas_call(
    body,
    grid=grid,
    in_specs=[present(ins)],
    out_specs=present(outs),
    out_shape=values(outs),
    scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
    compiler_params=pltpu.CompilerParams(dimension_semantics=semantics),
    interpret=False if interpret is None else interpret,
  )(values(ins))


def head_lanes(tiles):
  """(head, its lanes) of every head of a block."""
  d = tiles.width
  return [(h, slice(h * d, (h + 1) * d)) for h in range(tiles.heads)]
