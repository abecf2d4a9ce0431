"""Lightning attention in Triton: one kernel, in a pass for every result.

Forward, a program walks over the blocks of rows of one (b, h) with the state
of the recurrence in registers: 4 tensors moved. Backward, three passes of the
same kernel make dq forwards and dv and dk backwards, each from the states that
it makes anew, so that nothing is saved for them: 12 tensors, or 15 with SiLU.
Where B * H leaves the device empty, L is cut into parts: a pass first makes
what every part adds to the state, so that all parts can start at once (2
tensors more, forward and backward).
"""

import functools
import math

import jax.numpy as jnp

from kernels import chunks, dispatch, triton, triton_blocks
from kernels.lightning import pallas_triton_walk
from kernels.linear.options import check_value_width


def supported(shape, dtype, value_width=None, state=False):
  """Raises NotImplementedError for what `forward` cannot take."""
  del state  # takes them and returns them
  check_value_width(shape, value_width)
  triton.supported(
    shape, dtype, dispatch.interpret_params(), dispatch.target_is_local()
  )


def forward(inputs, options, save):
  """(out, final state or None, states in front of the parts or None)."""
  call = _Call(inputs, options)
  first = call.before()
  outs = call('o', first, last=options.return_state)
  final = outs['last'][:, :, -1] if options.return_state else None
  return outs['rows'].reshape(inputs.shape), final, first if save else None


def backward(inputs, saved, do, dfinal, options):
  """(gradients of q, k, v; of the bias; of the initial state)."""
  call = _Call(inputs, options, do)
  after = call.after(dfinal)
  dq = call('dq', saved)
  dv = call('dv', after, taken=dq['rows'], last=inputs.state is not None)
  dk = call('dk', after, taken=dv['rows'])
  dstate = None if inputs.state is None else dv['last'][:, :, 0]
  dbias = None
  if inputs.bias is not None:
    dbias = jnp.stack([x['dbias'] for x in (dq, dk, dv)])
  if inputs.packed:
    grads = (dk['rows'].reshape(inputs.arrays[0].shape),)
  else:
    grads = tuple(x['rows'].reshape(inputs.shape) for x in (dq, dk, dv))
  return grads, dbias, dstate


def _size(width, dtype):
  """(rows, columns of a block, depth of a slice, warps, stages)."""
  lanes = triton_blocks.padded(width)
  if dtype == jnp.float32:
    match lanes:
      case 16 | 32 | 64:
        return 32, min(lanes, 32), lanes, 4, 2
      case 128:
        return 32, 64, 32, 8, 2
    return 16, 16, 32, 4, 2
  match lanes:
    case 16 | 32 | 64:
      return 32, lanes, lanes, 4, 2
    case 128:
      return 32, 128, 64, 8, 2
  return 32, 32, 256, 8, 2


class _Call:
  """The passes on the arrays of a call."""

  def __init__(self, inputs, options, do=None):
    self.inputs, self.options = inputs, options
    names = ('q', 'k', 'v')
    self.arrays = dict(zip(names, triton.qkv(inputs), strict=True))
    self.arrays['do'] = triton.flat(do)
    rows, columns, self.depth, self.warps, self.stages = _size(
      inputs.shape[3], inputs.dtype
    )
    shape = triton_blocks.Shape(*inputs.shape, inputs.packed, rows, columns)
    self.programs = shape.heads * shape.column_blocks
    tools = triton_blocks.Tools(options.interpret is not None)
    self.plan = triton_blocks.Plan(
      shape, *_parts(shape, self.programs, self.warps), options, tools
    )

  def before(self):
    """float32 [B, H, parts, Dh, Dh]: the state in front of every part."""
    first = self.inputs.state
    if self.plan.parts == 1:
      return None if first is None else first[:, :, None]
    sums = self('o', None, rows=False, last=True)['last']
    if first is None:
      first = jnp.zeros_like(sums[:, :, 0])
    parts = jnp.concatenate([first[:, :, None], sums[:, :, :-1]], axis=2)
    return self._prefix(parts)

  def after(self, last):
    """The gradient of the state behind every part, in the same form."""
    if self.plan.parts == 1:
      return None if last is None else last[:, :, None]
    sums = self('dv', None, rows=False, last=True)['last']
    if last is None:
      last = jnp.zeros_like(sums[:, :, 0])
    rows = self.plan.shape.length - (self.plan.parts - 1) * self._rows
    left_H = chunks.over(self.inputs.slopes, rows)
    end = sums[:, :, -1] + left_H[:, None, None] * last
    later = jnp.concatenate([end[:, :, None], sums[:, :, -2:0:-1]], axis=2)
    after = self._prefix(later)[:, :, ::-1]
    return jnp.concatenate([after, last[:, :, None]], axis=2)

  @property
  def _rows(self):
    """Of a part."""
    return self.plan.per_part * self.plan.shape.rows

  def _prefix(self, x_BxHxPxDxE):
    x = jnp.swapaxes(x_BxHxPxDxE, 1, 2)
    x = chunks.prefix(x, self.inputs.slopes * self._rows)
    return jnp.swapaxes(x, 1, 2)

  def __call__(self, which, first, rows=True, last=False, taken=None):
    """'rows', 'last' and 'dbias' of a pass; see `pallas_triton_walk.walk`.

    Args:
      which: of `pallas_triton_walk.PASSES`.
      first: float32 [B, H, parts, Dh, Dh] or None.
      rows, last: whether these are wanted.
      taken: packed, the array that the result is written into.
    """
    inputs, plan = self.inputs, self.plan
    b, length, h, d = inputs.shape
    this = pallas_triton_walk.PASSES[which]
    packed = inputs.packed and bool(this.out)
    names = {this.x, this.y, this.c} if rows else {this.y, this.c}
    if rows and this.out and self.options.activation == 'silu':
      names.add(this.out)
    like = functools.partial(dispatch.like, inputs.arrays[0])
    states, total = (b, h, plan.parts, d, d), (b, h, plan.parts, d)
    dbias = rows and this.out and inputs.bias is not None
    outs = {
      'rows': (b * length, (3 if packed else 1) * h * d) if rows else None,
      'last': _two(states) if last else None,
      'dbias': _two(total) if dbias else None,
    }
    outs = triton.call(
      f'lightning_{which}' if rows else f'lightning_{which}_states',
      functools.partial(
        pallas_triton_walk.walk, plan=plan, which=which, depth=self.depth
      ),
      {
        **{n: x if n in names else None for n, x in self.arrays.items()},
        'mask': None if inputs.mask is None else inputs.mask.reshape(-1),
        'slopes': inputs.slopes,
        'first': None if first is None else first.reshape(-1, d),
        'taken': taken if packed else None,
      },
      {
        n: None
        if x is None
        else like(x, inputs.dtype if n == 'rows' else jnp.float32)
        for n, x in outs.items()
      },
      grid=(self.programs, plan.parts, b),
      warps=self.warps,
      stages=self.stages,
      interpret=self.options.interpret,
      alias=('taken', 'rows') if packed and taken is not None else (),
    )
    if last:
      outs['last'] = outs['last'].reshape(states)
    if dbias:
      outs['dbias'] = jnp.sum(outs['dbias'].reshape(total), axis=(0, 2))
    return outs


def _two(shape):
  """The shape in two dimensions."""
  return math.prod(shape[:-1]), shape[-1]


def _parts(shape, programs, warps):
  """One part, unless that leaves part of the device empty."""
  pairs = shape.batch * programs
  if pairs >= triton.cores():
    return 1, shape.blocks
  return triton.cut(shape.length, pairs, shape.rows, per_core=8 // warps)
