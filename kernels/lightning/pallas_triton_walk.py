"""Triton kernel of lightning attention: one recurrence for four results.

The output and all gradients are sums over the tokens on one side,
  o_i  = sum_{j <= i} w_ij (q_i . k_j) v_j
  dq_i = sum_{j <= i} w_ij (do_i . v_j) k_j
  dv_j = sum_{i >= j} w_ij (k_j . q_i) do_i
  dk_j = sum_{i >= j} w_ij (v_j . do_i) q_i      w_ij = scale exp(-s (i - j)).
Each has the form `sum (x . y) c`. A program walks over blocks of rows, forwards
or backwards, with the state `sum y^T c` of a block of columns of c in
registers. The state is S for o, S^T for dq, dS for dv and dS^T for dk. See
`lra.kernels.chunks`.
"""

import dataclasses
import math

import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import triton as plt

from lra.kernels import chunks
from lra.kernels.triton import Walk, keep, settled, zeros

SMALL = 32  # most rows of a block whose distances are kept in registers


@dataclasses.dataclass(frozen=True)
class Pass:
  """How to compute one of the four results, each a `sum (x . y) c`.

  `out` is the operand of which the result is the gradient, '' for the output.
  The gradient is stored like this operand and multiplied by the derivative of
  its activation. `back` walks from the last row to the first. `turned` is
  whether the state is S or dS transposed.
  """
  x: str
  y: str
  c: str
  out: str
  back: bool
  turned: bool


PASSES = {'o': Pass('q', 'k', 'v', '', False, False),
          'dq': Pass('do', 'v', 'k', 'q', False, True),
          'dv': Pass('k', 'q', 'do', 'v', True, False),
          'dk': Pass('v', 'do', 'q', 'k', True, True)}


def walk(ins, outs, *, plan, which, depth):
  """Computes a pass of `PASSES`, or only its state.

  Further input: `first`, float32 [B H parts Dh, Dh], state at the start of each
  part. Outputs, each of which may be None: `rows`; `last`, the states at the
  ends of parts; `saved`, [B H blocks Dh, Dh], the state before every block,
  only for 'o'; `dbias`, [B H parts, Dh], the sums of the result. A matmul sums
  over `depth` columns of x and y at a time.
  """
  this = PASSES[which]
  program = Walk(plan, by_columns=True)
  at, tools, shape = program.at, plan.tools, plan.shape
  columns, silu = program.block, plan.options.activation == 'silu'
  slices = [None]
  if depth < shape.lanes:
    slices = [(first, depth) for first in range(0, shape.width, depth)]

  def load(name, n, valid, block=None):
    x = at.load(getattr(ins, name), n, valid, name, block)
    if silu and name != 'do':
      x = _silu(x)
    return settled(x, n) if silu or x.dtype == jnp.float32 else x

  def step(n, again, carry):
    states, dbias = carry
    sees = decays(ins.slopes, at, n, plan.options.scale)
    valid = at.valid(ins.mask, n)
    if outs.saved is not None:
      index = program.pair * shape.blocks + again
      for block, state in zip(slices, states, strict=True):
        at.store_state(outs.saved, index, state, block, columns)
    reads, writes = sees.start, sees.end
    if this.back:
      reads, writes = writes, reads
    ys = [load(this.y, n, valid, block) for block in slices]
    c = load(this.c, n, valid, columns)
    if outs.rows is not None:
      scores, o = (zeros(shape.rows, shape.rows),
                   zeros(shape.rows, shape.columns))
      for block, y, state in zip(slices, ys, states, strict=True):
        x = load(this.x, n, valid, block)
        scores = scores + tools.dot(x, y, turn_b=True)
        o = o + tools.dot(x, state.astype(x.dtype))
      scores = (scores * sees.within(this.back)).astype(c.dtype)
      o = o * reads[:, None] + tools.dot(scores, c)
      if silu and this.out:
        raw = at.load(getattr(ins, this.out), again, valid, this.out, columns)
        o = o * _silu_slope(raw)
      o = keep(valid, o)
      at.store(outs.rows, again, valid, o, this.out, columns)
      if dbias is not None:
        dbias = dbias + jnp.sum(o, axis=0)
    c = (c.astype(jnp.float32) * writes[:, None]).astype(c.dtype)
    left = sees.over()
    states = tuple(state * left + tools.dot(y, c, turn_a=True)
                   for y, state in zip(ys, states, strict=True))
    return states, dbias

  states = tuple(_first(ins.first, program, block, this.turned)
                 for block in slices)
  dbias = None if outs.dbias is None else zeros(shape.columns)
  states, dbias = program.run(step, (states, dbias), this.back)
  if outs.last is not None:
    for block, state in zip(slices, states, strict=True):
      _store_last(outs.last, state, program, block, this.turned)
  if dbias is not None:
    at.store_row(outs.dbias, program.part, dbias, columns)


def _first(ref, program, block, turned):
  at, part, columns = program.at, program.part, program.block
  if ref is None:
    height = at.shape.lanes if block is None else block[1]
    return zeros(height, at.shape.columns)
  if turned:
    return at.load_state(ref, part, rows=columns, columns=block).T
  return at.load_state(ref, part, rows=block, columns=columns)


def _store_last(ref, state, program, block, turned):
  at, part, columns = program.at, program.part, program.block
  if turned:
    at.store_state(ref, part, state.T, rows=columns, columns=block)
  else:
    at.store_state(ref, part, state, rows=block, columns=columns)


def _sigmoid(x):
  return 1.0 / (1.0 + jnp.exp(-x))


def _silu(x):
  wide = x.astype(jnp.float32)
  return (wide * _sigmoid(wide)).astype(x.dtype)


def _silu_slope(x):
  x = x.astype(jnp.float32)
  part = _sigmoid(x)
  return part * (1.0 + x * (1.0 - part))


def decays(slopes_ref, at, n, scale):
  """Returns the decays of block n of rows, a `_Kept` or a `_Fresh`.

  If r rows of the block exist, `start` is scale exp(-s (i + 1)), `end`
  exp(-s (r - 1 - i)), `over()` exp(-s r), and `within(back)` scale
  exp(-s |i - j|) if row i sees row j, an earlier row or with `back` a later.
  """
  # The slope is loaded for every block, or Triton would keep the decays in
  # registers.
  slope = plt.load(slopes_ref.at[at.h])
  rows = exist = at.shape.rows
  if at.shape.length % rows:
    exist = jnp.minimum(at.shape.length - n * rows, rows)
  return (_Kept if rows <= SMALL else _Fresh)(slope, rows, exist, scale)


class _Kept:
  """Decays from distances kept in registers, equal for all blocks."""

  def __init__(self, slope, rows, exist, scale):
    self._slope, self._exist, self._scale = slope, exist, scale
    self._rows = lax.broadcasted_iota(jnp.int32, (rows,), 0)
    self.start = chunks.from_start(slope, self._rows) * scale
    self.end = chunks.to_end(slope, self._rows, exist)

  def over(self):
    return chunks.over(self._slope, self._exist)

  def within(self, back=False):
    rows, cols = self._rows[:, None], self._rows[None]
    if back:
      rows, cols = cols, rows
    return chunks.within(self._slope, rows, cols) * self._scale


class _Fresh:
  """Decays from distances that are recomputed for every block, as powers of 2.
  """

  def __init__(self, slope, rows, exist, scale):
    self._speed, self._scale = slope * -math.log2(math.e), scale
    self._exist = jnp.asarray(exist).astype(jnp.float32)
    self._cols = lax.broadcasted_iota(jnp.float32, (rows,), 0)
    # Rows depend on a loaded value, so no distance is hoisted from the loop.
    self._rows = self._cols + slope * 0.0
    left = jnp.maximum(self._exist - 1 - self._rows, 0.0)
    self.start = jnp.exp2(self._speed * (self._rows + 1)) * scale
    self.end = jnp.exp2(self._speed * left)

  def over(self):
    return jnp.exp2(self._speed * self._exist)

  def within(self, back=False):
    rows, cols = self._rows[:, None], self._cols[None]
    gap = cols - rows if back else rows - cols
    decay = jnp.exp2(self._speed * gap) * self._scale
    return jnp.where(gap >= 0, decay, 0.0)
