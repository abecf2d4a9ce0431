"""Lightning attention in Triton: one kernel forward, one to three backward.

A program walks over the blocks of rows of one (b, h) with the state in
registers. Backward, a kernel computes as many gradients as they allow:

  all: 7 tensors are read or written, and the states before all blocks;
  dq, then dk and dv: 10 tensors, or 11 with SiLU, with recomputed states;
  dq, dk, dv by the forward kernel: 12 tensors, or 15 with SiLU.

If B * H leaves most of the device empty, L is cut into parts, whose additions
to the state are computed first. That reads 2 more tensors in each pass.
"""

import dataclasses

import jax.numpy as jnp

from lra.kernels import chunks, triton
from lra.kernels.lightning import pallas_triton_gradients, pallas_triton_walk


def supported(shape, dtype, state=False):
  del dtype, state  # all dtypes, initial and final states are supported
  triton.supported(shape)


def forward(inputs, options, save):
  """Saves states before blocks for one gradient kernel, or before parts."""
  call = _Call(inputs, options)
  first, blocks = call.before(), save and call.size.together == 'qkv'
  outs = call('o', first, last=options.return_state, save=blocks)
  final = outs['last'][:, :, -1] if options.return_state else None
  saved = outs['saved'] if blocks else first
  return (outs['rows'].reshape(inputs.shape), final), saved if save else None


def backward(inputs, saved, cotangents, options):
  do, dfinal = cotangents
  call = _Call(inputs, options, do)
  after = call.after(dfinal)
  if call.size.together == 'qkv':
    rows, sums, last = call.together(after, saved=saved)
  else:
    dq = call('dq', saved)
    if call.size.together:
      rows, sums, last = call.together(after, taken=dq['rows'])
    else:
      dk = call('dk', after, taken=dq['rows'])
      dv = call('dv', after, taken=dk['rows'], last=inputs.state is not None)
      rows, last = (dk['rows'], dv['rows']), dv['last']
      sums = dk['dbias'], dv['dbias']
    rows, sums = (dq['rows'], *rows), (dq['dbias'], *sums)
  if inputs.packed:
    rows = rows[-1:]  # one array that every kernel has written to
  dbias = None if inputs.bias is None else jnp.stack(sums)
  dstate = None if inputs.state is None else last[:, :, 0]
  shape = inputs.arrays[0].shape
  return inputs.gradients([x.reshape(shape) for x in rows], dbias, dstate)


@dataclasses.dataclass(frozen=True)
class _Size:
  """Sizes of a program; a matmul sums over `depth` columns of q, k and v.

  `together` are the gradients that one kernel computes, 'qkv', 'kv' or ''.
  """
  rows: int
  columns: int
  depth: int
  warps: int
  stages: int
  together: str = ''
  together_warps: int = 8


def _size(width, dtype):
  lanes = triton.padded(width)
  if dtype == jnp.float32:
    match lanes:
      case 16 | 32 | 64:
        return _Size(32, min(lanes, 32), lanes, 4, 2)
      case 128:
        return _Size(32, 64, 32, 8, 2)
    return _Size(16, 16, 32, 4, 2)
  match lanes:
    case 16 | 32:
      return _Size(64, lanes, lanes, 4, 2, 'qkv')
    case 64:
      return _Size(32, lanes, lanes, 4, 2, 'kv')
    case 128:
      return _Size(32, 128, 64, 8, 2)
  return _Size(32, 32, 256, 8, 2)


class _Call:

  def __init__(self, inputs, options, do=None):
    self.inputs, self.options = inputs, options
    names = ('q', 'k', 'v')
    self.arrays = dict(zip(names, triton.qkv(inputs), strict=True))
    self.arrays['do'] = triton.flat(do)
    self.size = _size(inputs.shape[3], inputs.dtype)
    shape = triton.Shape(*inputs.shape, inputs.packed, self.size.rows,
                         self.size.columns)
    self.programs = shape.heads * shape.column_blocks
    tools = triton.Tools(options.interpret is not None)
    self.plan = triton.Plan(
        shape, *_parts(shape, self.programs, self.size.warps), options, tools)

  def before(self):
    """Returns the state before every part, float32 [B, H, parts, Dh, Dh]."""
    first = self.inputs.state
    if self.plan.parts == 1:
      return None if first is None else first[:, :, None]
    sums = self('o', None, rows=False, last=True)['last']
    return chunks.before_parts(sums, self.inputs.slopes, first, self._rows)

  def after(self, last):
    """Returns the state's gradient after every part, [B, H, parts, Dh, Dh]."""
    if self.plan.parts == 1:
      return None if last is None else last[:, :, None]
    sums = self('dv', None, rows=False, last=True)['last']
    return chunks.after_parts(sums, self.inputs.slopes, last, self._rows,
                              self.plan.shape.length)

  @property
  def _rows(self):
    return self.plan.per_part * self.plan.shape.rows

  def __call__(self, which, first, rows=True, last=False, save=False,
               taken=None):
    """Runs a pass of `pallas_triton_walk.PASSES`; returns a dict of results.

    `first` is the state at the start of each part. The results are 'rows',
    'last' (states at the ends of parts), 'saved' (states before all blocks) and
    'dbias', as far as asked. `taken` is a packed array that gets 'rows'.
    """
    inputs, size = self.inputs, self.size
    this = pallas_triton_walk.PASSES[which]
    packed = inputs.packed and bool(this.out)
    names = {this.x, this.y, this.c} if rows else {this.y, this.c}
    if rows and this.out and self.options.activation == 'silu':
      names.add(this.out)
    dbias = rows and this.out and inputs.bias is not None
    outs = self._run(
        f'lightning_{which}' if rows else f'lightning_{which}_states',
        pallas_triton_walk.walk, size.warps,
        {**{n: x if n in names else None for n, x in self.arrays.items()},
         'first': first, 'taken': taken if packed else None},
        {'rows': self._rows_like(packed) if rows else None,
         'last': self._states() if last else None,
         'saved': self._saved() if save else None,
         'dbias': self._sums() if dbias else None},
        alias=('taken', 'rows') if packed and taken is not None else (),
        which=which, depth=size.depth)
    if dbias:
      outs['dbias'] = jnp.sum(outs['dbias'], axis=(0, 2))
    return outs

  def together(self, after, saved=None, taken=None):
    """Returns (rows, sums, last) of the gradients that one kernel computes.

    They are an array for each gradient or, if packed, one for all; sums for the
    bias; and dS before every part. `after` is dS after every part, `saved` S
    before every block, for dq. For packed inputs `taken` holds dq already.
    """
    inputs, names = self.inputs, self.size.together
    packed = inputs.packed
    apart = [] if packed else [f'd{x}' for x in names]
    outs = self._run(
        'lightning_gradients',
        pallas_triton_gradients.gradients, self.size.together_warps,
        {**self.arrays, 'first': after, 'saved': saved,
         'taken': taken if packed else None},
        {**{n: self._rows_like() for n in apart},
         'rows': self._rows_like(packed) if packed else None,
         'last': None if inputs.state is None else self._states(),
         'dbias': None if inputs.bias is None else self._sums(len(names))},
        alias=('taken', 'rows') if packed and taken is not None else (),
        names=names)
    sums = ()
    if inputs.bias is not None:
      sums = jnp.moveaxis(jnp.sum(outs['dbias'], axis=(0, 2)), 1, 0)
    return tuple(outs[n] for n in apart or ['rows']), sums, outs['last']

  def _run(self, name, kernel, warps, ins, outs, **options):
    grid = self.programs, self.plan.parts, self.inputs.shape[0]
    return triton.run(name, kernel, self.plan, self.inputs, ins, outs,
                      grid=grid, warps=warps, stages=self.size.stages,
                      **options)

  def _rows_like(self, packed=False):
    b, length, h, d = self.inputs.shape
    return (b * length, (3 if packed else 1) * h * d), self.inputs.dtype

  def _states(self):
    b, _, h, d = self.inputs.shape
    return (b, h, self.plan.parts, d, d), jnp.float32

  def _saved(self):
    b, _, h, d = self.inputs.shape
    return (b, h, self.plan.shape.blocks, d, d), self.inputs.dtype

  def _sums(self, *count):
    b, _, h, d = self.inputs.shape
    return (b, h, self.plan.parts, *count, d), jnp.float32


def _parts(shape, programs, warps):
  pairs = shape.batch * programs
  if 2 * pairs > triton.cores():
    return 1, shape.blocks
  return triton.cut(shape.length, pairs, shape.rows, per_core=8 // warps)
