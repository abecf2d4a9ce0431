"""Building blocks of the Pallas TPU kernels: blocks, masks, matmuls, calls.

Arrays are viewed as [B, L, H * Dh], or [B, L, 3 * H * Dh] for packed q, k and
v, as a projection writes them. The layout [B, H, L, Dh] would pad Dh 64 to the
128 lanes of a register and need a transpose. A block holds some rows of a group
of whole heads.
"""

import dataclasses
import math
import types

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lra.kernels import dispatch
from lra.kernels.xla import precision

LANES = 128
STEP = 128
MAX_LANES = 512
MAX_ROWS = 512
MAX_WIDTH = 1024
# Kernels are unrolled over the heads of a block.
MAX_HEADS = 32
BLOCK_BYTES = 512 * 1024
# VMEM that the compiler grants by default, and VMEM that all TPUs except a v4
# have.
DEFAULT_VMEM = 16 * 1024 * 1024
MAX_VMEM = 64 * 1024 * 1024
# Memory for everything else: masks, normalisers, biases.
SPARE = 4 * 1024 * 1024
# Tensors of a backward pass: q, k, v, do, dq, dk, dv.
TENSORS = 7


def supported(shape, dtype):
  """Raises NotImplementedError for operands the TPU kernels cannot take."""
  width = shape[-1]
  if width > MAX_WIDTH:
    raise NotImplementedError('pallas_tpu keeps Dh x Dh sums on chip, for head '
                              'widths Dh (last dimension of q, k, v) of at '
                              f'most {MAX_WIDTH}, got {width}')
  tiles = tiling(shape, dtype)
  if tiles.lanes > 4 * MAX_WIDTH or tiles.heads > MAX_HEADS:
    raise NotImplementedError('pallas_tpu takes blocks of whole heads that '
                              f'fill registers of {LANES} lanes, up to '
                              f'{MAX_HEADS} heads and {4 * MAX_WIDTH} lanes; H '
                              f'= {shape[-2]} heads of width Dh = {width} make '
                              f'{tiles.heads} heads and {tiles.lanes} lanes')


@dataclasses.dataclass(frozen=True)
class Tiling:
  """Division of operands [B, L, H * Dh] into blocks of heads and tokens (rows).
  """
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

  # Block specs of arrays. `where` maps a point of the grid to (b, g, n): the
  # example, the group of heads, the block of rows.

  def spec(self, shape, where, index):
    return pl.BlockSpec(shape, lambda *point: index(*where(*point)))

  def tile(self, where, first=0):
    """The spec of [B, L, lanes * any]; group 0 is at block `first`."""
    return self.spec((1, self.rows, self.lanes), where,
                     lambda b, g, n: (b, n, first + g))

  def row(self, where):
    return dataclasses.replace(self, heads=3 * self.heads).tile(where)

  def tokens(self, where):
    return self.spec((1, 1, self.rows), where, lambda b, g, n: (b, 0, n))

  def state(self, where, rows=None):
    return self.spec((1, self.heads, rows or self.width, self.width), where,
                     lambda b, g, n: (b, g, 0, 0))

  def bias(self, where):
    return self.spec((1, 3, self.lanes), where, lambda b, g, n: (b, 0, g))


def tiling(shape, dtype, wide=False):
  """Returns a `Tiling`; with `wide`, each block has all heads."""
  batch, length, num_heads, width = shape
  heads = num_heads if wide else _heads_per_block(num_heads, width)
  rows = block_rows(length, heads * width, dtype)
  return Tiling(batch, length, num_heads, width, heads, rows)


def block_rows(length, lanes, dtype):
  """Returns rows of blocks of BLOCK_BYTES: a multiple of 128, or all L."""
  if length <= STEP:
    return length
  most = BLOCK_BYTES // (lanes * jnp.dtype(dtype).itemsize)
  most = max(STEP, min(MAX_ROWS, most) // STEP * STEP)
  # Even blocks: 1,025 rows are three blocks of 384, not of 512.
  return pl.cdiv(pl.cdiv(length, pl.cdiv(length, most)), STEP) * STEP


def _heads_per_block(num_heads, width):
  """Returns how many heads fill whole registers, within MAX_LANES if possible.
  """
  filling = [heads for heads in range(1, num_heads + 1)
             if num_heads % heads == 0 and heads * width % LANES == 0]
  fitting = [heads for heads in filling
             if heads * width <= MAX_LANES and heads <= MAX_HEADS // 2]
  return (fitting[-1:] or filling[:1] or [num_heads])[0]


def flat(x):
  """Flattens to [B, L, columns]; no copy if a projection made x."""
  return x.reshape(*x.shape[:2], -1)


def by_columns(inputs, tiles):
  """Returns whether packed inputs can be read by groups of heads, in place."""
  return inputs.packed and tiles.lanes % LANES == 0


def columns(inputs, tiles):
  """Returns (array, first group of heads) of q, k and v, for `Tiling.tile`.

  Packed inputs are copied into three arrays unless a group fills registers.
  """
  if by_columns(inputs, tiles):
    qkv = flat(inputs.arrays[0])
    return [(qkv, i * tiles.groups) for i in range(3)]
  return [(flat(x), 0) for x in inputs.apart()]


@dataclasses.dataclass(frozen=True)
class Steps:
  """Steps of the kernels of linear and lightning attention on a block.

  `ins` and `outs` are the references of a kernel, see `call`. q, k and v, and
  their gradients, are `which` 0, 1 and 2. If `packed`, a block holds whole rows
  of q, k and v in one array, and a block of results those of their gradients.
  """
  tiles: Tiling
  options: object
  dtype: object
  packed: bool = False

  def operands(self, inputs, row, **where):
    """Returns name -> (BlockSpec, array) of q, k, v for `call`.

    `where` maps names to functions from a point of the grid to a block
    (b, g, n); `row` is that of packed rows.
    """
    if self.packed:
      return {'q k v': (self.tiles.row(row), flat(inputs.arrays[0]))}
    arrays = dict(zip('qkv', columns(inputs, self.tiles), strict=True))
    return {name: (self.tiles.tile(at, arrays[name][1]), arrays[name][0])
            for name, at in where.items()}

  def heads(self):
    return range(self.tiles.heads)

  def lane(self, head, which=0):
    """Returns the lanes of a head in a block; those of `which` if packed."""
    first = which * self.tiles.lanes if self.packed else 0
    d = self.tiles.width
    return slice(first + head * d, first + (head + 1) * d)

  def read(self, ins, which, head, rows=slice(None)):
    return getattr(ins, 'qkv'[which])[0, rows, self.lane(head, which)]

  def write(self, outs, which, head, grad, rows=slice(None)):
    """Stores a rounded gradient; adds it, unrounded, to the bias's gradient."""
    ref = getattr(outs, ('dq', 'dk', 'dv')[which])
    ref[0, rows, self.lane(head, which)] = grad.astype(self.dtype)
    if outs.bias is not None:
      d = self.tiles.width
      at = 0, slice(which, which + 1), slice(head * d, (head + 1) * d)
      outs.bias[at] += jnp.sum(grad, axis=0, keepdims=True)

  def start(self, sums, state):
    """Sets sums to 0, or to the blocks of `state`."""
    for ref, first in zip(sums, state, strict=True):
      ref[...] = jnp.zeros_like(ref) if first is None else first[0]


def bias_sums(inputs, tiles, where):
  """Returns (spec, shape or None) of sums for the bias's gradient."""
  x = None
  if inputs.bias is not None:
    columns = inputs.shape[2] * inputs.shape[3]
    x = dispatch.like(
        inputs.arrays[0], (inputs.shape[0], 3, columns), jnp.float32)
  return tiles.bias(where), x


def gradients(inputs, outs, dstate):
  """Returns `inputs.gradients` of the results of `call`.

  `outs['bias']` is float32 [B, 3, H * Dh], to be summed, or None.
  """
  b, length, h, d = inputs.shape
  bias = outs['bias']
  if bias is not None:
    bias = bias.sum(0).reshape(3, h, d)
  if 'dq dk dv' in outs:
    arrays = (outs['dq dk dv'].reshape(b, length, 3, h, d),)
  else:
    arrays = tuple(outs[n].reshape(b, length, h, d) for n in ('dq', 'dk', 'dv'))
  return inputs.gradients(arrays, bias, dstate)


def mask_rows(mask_BxL):
  """Returns float32 [B, 1, L]: L lies on the lanes and is not padded to 128."""
  if mask_BxL is None:
    return None
  return mask_BxL.astype(jnp.float32)[:, None, :]


def valid(mask_R, start, rows, tiles):
  """Returns bool [rows, 1] of valid tokens from `start` on; None if all are."""
  out = None
  if tiles.ragged:
    row = lax.broadcasted_iota(jnp.int32, (rows, 1), 0)
    out = row < tiles.length - start
  if mask_R is not None:
    token = mask_R[:, None] > 0
    out = token if out is None else out & token
  return out


def keep(valid_Rx1, x):
  """Returns x with 0 in rows that are not valid (x may hold NaN there)."""
  return x if valid_Rx1 is None else jnp.where(valid_Rx1, x, 0)


def products(dtype):
  """Returns functions a @ b, a @ b.T and a.T @ b with float32 sums."""
  def make(a_dim, b_dim):
    def dot(a, b):
      if a.shape[a_dim] == 1:
        # Mosaic makes such a matmul a multiplication, which needs float32.
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
      return lax.dot_general(a, b, (((a_dim,), (b_dim,)), ((), ())),
                             precision=precision(dtype),
                             preferred_element_type=jnp.float32)

    return dot

  return make(1, 0), make(1, 1), make(0, 0)


def call(kernel, ins, outs, *, grid, semantics, scratch, interpret, flops,
         transcendentals=0):
  """Runs a kernel; returns name -> array or None, for every output.

  Args:
    kernel: function of two namespaces of references, inputs and outputs (None
      if absent), and of the scratch references.
    ins: name -> (BlockSpec, array or None). To give one array several names,
      separate them by blanks.
    outs: name -> (BlockSpec, jax.ShapeDtypeStruct or None), likewise.
    grid, semantics: the grid and the dimension semantics of its axes.
    scratch: shapes of float32 scratch memory.
    interpret: None to compile, else the interpreter's parameters.
    flops, transcendentals: cost of the kernel, for XLA's scheduler.
  """
  def body(in_refs, out_refs, *scratch_refs):
    kernel(named(in_refs), named(out_refs), *scratch_refs)

  def named(refs):
    apart = {n: x for names, x in refs.items() for n in names.split()}
    return types.SimpleNamespace(**apart)

  def present(pairs):
    return {n: None if x is None else spec for n, (spec, x) in pairs.items()}

  def values(pairs):
    return {name: x for name, (_, x) in pairs.items()}

  arrays = [(s, x) for s, x in (*ins.values(), *outs.values()) if x is not None]
  return pl.pallas_call(
      body, grid=grid, in_specs=[present(ins)], out_specs=present(outs),
      out_shape=values(outs),
      scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
      compiler_params=pltpu.CompilerParams(
          dimension_semantics=semantics,
          vmem_limit_bytes=_vmem(arrays, scratch)),
      cost_estimate=pl.CostEstimate(
          flops=flops, transcendentals=transcendentals,
          bytes_accessed=sum(x.size * x.dtype.itemsize for _, x in arrays)),
      interpret=False if interpret is None else interpret)(values(ins))


def _vmem(arrays, scratch):
  total = sum(padded(shape, 4) for shape in scratch)
  for spec, x in arrays:
    if spec.block_shape is not None:
      total += 2 * padded(spec.block_shape, x.dtype.itemsize)
  # Requests twice as much, for values that do not fit into registers.
  return min(2 * total, MAX_VMEM) if 2 * total > DEFAULT_VMEM else None


def padded(shape, itemsize):
  """Returns the bytes of a block in VMEM: tiles of (8, 128) words."""
  *major, rows, lanes = shape
  sublanes = 32 // itemsize
  rows, lanes = (pl.cdiv(n, m) * m
                 for n, m in ((rows, sublanes), (lanes, LANES)))
  return math.prod(major) * rows * lanes * itemsize


def check_memory(tiles, dtype, *, scratch=(), state=False, states=1):
  """Raises NotImplementedError if the larger pass needs too much memory.

  Blocks that are streamed exist twice, in use and in transfer. Values that
  spill from registers were measured after compilation: less than two states of
  a head. In float32, whose matmuls take several passes, they are less than
  three states of each head. `scratch` has the shapes of float32 memory besides
  `states` states of a block of heads; `state` is whether the call has a state.
  """
  itemsize = jnp.dtype(dtype).itemsize
  square = tiles.width, tiles.width
  moved = TENSORS * padded((tiles.rows, tiles.lanes), itemsize)
  moved += tiles.heads * padded(square, itemsize)
  if state:
    moved += 2 * tiles.heads * padded(square, 4)
  values = 3 * tiles.heads if itemsize == 4 else 2
  kept = (states * tiles.heads + values) * padded(square, 4)
  kept += sum(padded(shape, 4) for shape in scratch)
  needed = kept + 2 * moved + SPARE
  if needed > MAX_VMEM:
    raise NotImplementedError(
        f'pallas_tpu keeps states and blocks of {tiles.heads} heads of width '
        f'Dh = {tiles.width} on chip, in at most {MAX_VMEM >> 20} MiB of '
        f'memory; those of {jnp.dtype(dtype).name} q, k, '
        f'v{" and a state" * state} take {needed >> 20} MiB')
