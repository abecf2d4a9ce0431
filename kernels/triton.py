"""What the Triton kernels share: blocks of rows, products, the call.

For every NVIDIA GPU since Ampere. A program (CTA) works on blocks of rows of
one head; its arrays are seen in two dimensions, rows of tokens [B L, H Dh] or,
where q, k and v are one array, [B L, 3 H Dh], and a head is a range of
columns: nothing is transposed, copied or padded in memory. Triton wants powers
of two: columns behind Dh and rows behind the end of a sequence are neither
loaded (they are 0) nor stored.

Products of bfloat16 sum in float32 on tensor cores. Pallas gives Triton
float32 operands as they are: `lax.Precision.HIGHEST` is its "ieee" (fused
multiply-add, no tensor core), DEFAULT and HIGH are a single TF32 product (ten
bits), in jax 0.10 and 0.12 alike. So float32 products here ask for
`lax.DotAlgorithmPreset.TF32_TF32_F32_X3`: operands are split in two TF32
numbers, and three products make about 21 bits. Interpreted, a product splits
its operands in the same way, so that the errors found are those of the split.

Jax calls this backend of Pallas deprecated since 0.12: where it is gone,
importing this file fails, and `dispatch` says so and takes plain XLA.
"""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels import dispatch

WIDTHS = range(16, 257)
CAPABILITY = 8.0  # Ampere: bfloat16 and TF32 tensor cores, asynchronous copies
CORES = 108  # of an A100, for programs whose device is not known


def supported(shape, dtype, interpret, local):
  """Raises NotImplementedError for what the Triton kernels cannot take.

  Args:
    shape, dtype: of q.
    interpret: what the interpreter is given, or None.
    local: False when the program is for a device that is not here.
  """
  del dtype  # both that the operations accept
  if shape[-1] not in WIDTHS:
    raise NotImplementedError(
      f"pallas_triton supports head widths Dh (last dimension of q, k, v) "
      f"from {WIDTHS[0]} to {WIDTHS[-1]}, got {shape[-1]}"
    )
  if interpret is None and local:
    _check_device()


def _check_device():
  device = _local_gpu()
  capability = getattr(device, "compute_capability", None)
  try:
    good = float(capability) >= CAPABILITY
  except (TypeError, ValueError):
    good = False
  if not good:
    raise NotImplementedError(
      f"pallas_triton needs an NVIDIA device of compute capability "
      f"{CAPABILITY} or above, got {capability or jax.default_backend()}"
    )


def _local_gpu():
  for device in jax.local_devices():
    if device.platform in ("gpu", "cuda"):
      return device
  return None


def cores():
  """Streaming multiprocessors of the device that programs are made for.

  Of the mesh's abstract device, where programs for another card are compiled;
  of the local one; else `CORES`.
  """
  abstract = jax.sharding.get_abstract_mesh().abstract_device
  count = getattr(abstract, "num_cores", None)
  if count is None and dispatch.target_is_local():
    count = getattr(_local_gpu(), "core_count", None)
  return count or CORES


def padded(width):
  """The power of two that a width is rounded up to inside a kernel."""
  return max(16, 1 << (width - 1).bit_length())


def cut(length, pairs, rows, per_core=4, least=4):
  """Into how many parts to cut L, so that the programs fill the device.

  Args:
    length: L.
    pairs: programs per part.
    rows: of a block.
    per_core: programs that one multiprocessor should have.
    least: blocks in a part.

  Returns:
    (parts, blocks per part); no part is empty, the last may be shorter.
  """
  blocks = -(-length // rows)
  wanted = -(-per_core * cores() // pairs)
  parts = max(1, min(wanted, blocks // least))
  per_part = -(-blocks // parts)
  return -(-blocks // per_part), per_part


def flat(x):
  """[B, L, H, Dh] or [B, L, 3, H, Dh] -> [B L, H Dh] or [B L, 3 H Dh]."""
  return None if x is None else x.reshape(x.shape[0] * x.shape[1], -1)


def qkv(inputs):
  """The arrays of q, k and v in two dimensions: one three times if packed."""
  arrays = tuple(map(flat, inputs.arrays))
  return arrays * 3 if inputs.packed else arrays


def call(name, kernel, ins, outs, *, grid, warps, stages, interpret, alias=()):
  """Runs a kernel whose operands and results may be absent.

  Args:
    name: for profilers.
    kernel: called with two namespaces of references: inputs and outputs (None
      for what is absent).
    ins, outs: name -> array, name -> jax.ShapeDtypeStruct; or None.
    grid: sizes of up to three axes; programs that differ in the first one
      alone run next to each other.
    warps: of a program.
    stages: of the loops that load what they multiply.
    interpret: None to compile.
    alias: (name of an input, name of the output that takes its place) or ().

  Returns:
    name -> array or None, for every output.
  """
  in_names = [n for n, x in ins.items() if x is not None]
  out_names = [n for n, x in outs.items() if x is not None]

  def body(*refs):
    found = dict(zip(in_names + out_names, refs, strict=True))
    # An input that gives its place away has the name of no other.
    kernel(
      types.SimpleNamespace(**{n: found.get(n) for n in ins}),
      types.SimpleNamespace(**{n: found.get(n) for n in outs}),
    )

  body.__name__ = name
  aliases = {}
  if alias:
    aliases = {in_names.index(alias[0]): out_names.index(alias[1])}
  results = pl.pallas_call(
    body,
    out_shape=[outs[n] for n in out_names],
    grid=grid,
    compiler_params=plt.CompilerParams(num_warps=warps, num_stages=stages),
    input_output_aliases=aliases,
    interpret=interpret is not None,
    name=name,
  )(*(ins[n] for n in in_names))
  found = dict(zip(out_names, results, strict=True))
  return {n: found.get(n) for n in outs}


@dataclasses.dataclass(frozen=True)
class Tools:
  """Products; `simulate` for the interpreter on a CPU."""

  simulate: bool

  def dot(self, a, b, turn_a=False, turn_b=False):
    """a @ b in float32, of the transposed operands where asked for."""
    if not self.simulate:
      exact = lax.DotAlgorithmPreset.TF32_TF32_F32_X3
      return _dot(
        a, b, turn_a, turn_b, exact if a.dtype == jnp.float32 else None
      )
    dot = functools.partial(
      _dot, turn_a=turn_a, turn_b=turn_b, precision=lax.Precision.HIGHEST
    )
    if a.dtype != jnp.float32:
      # Exact in float32, and XLA's CPU backend lacks some bf16 products.
      return dot(a.astype(jnp.float32), b.astype(jnp.float32))
    (a, a_rest), (b, b_rest) = _split(a), _split(b)
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
    return -(-self.lanes // self.columns)


SLOTS = {"q": 0, "k": 1, "v": 2}


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

  def load(self, ref, n, valid, name="", block=None):
    """Rows of block n, 0 where they do not count: [rows, lanes or columns].

    Args:
      ref: in two dimensions.
      n: the block of rows.
      valid: what `valid` gave.
      name: 'q', 'k' or 'v', or '' of an array of its own.
      block: the block of columns, or None for all.
    """
    view, mask = self._view(ref, n, valid, name, block)
    return _load(view, mask)

  def store(self, ref, n, valid, x, name="", block=None):
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
    slot = SLOTS[name] if name and shape.packed else 0
    first, size, lanes = self._columns(block)
    first = (slot * shape.heads + self.h) * shape.width + first
    view = ref.at[pl.ds(self._row(n), shape.rows), pl.ds(first, size)]
    return view, _both(valid, lanes)

  def load_state(self, ref, index, rows=None, columns=None):
    """A block of state `index` of [N Dh, Dh]; all where None is given."""
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

  def load_row(self, ref, index):
    """Row `index` of [N, Dh]: [lanes]."""
    return _load(*self._vector(ref, index))

  def store_row(self, ref, index, x, block=None):
    view, mask = self._vector(ref, index, block)
    plt.store(view, x.astype(ref.dtype), mask=mask)

  def _vector(self, ref, index, block=None):
    first, size, lanes = self._columns(block)
    return ref.at[index, pl.ds(first, size)], lanes

  def _columns(self, block):
    """(first, how many, bool for those that exist or None) of a block."""
    size, first = self.shape.lanes, 0
    if block is not None:
      size, first = self.shape.columns, block * self.shape.columns
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


def keep(valid, x):
  """x, with 0 in the rows that do not count."""
  return x if valid is None else jnp.where(valid[:, None], x, 0.0)
