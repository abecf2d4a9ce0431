"""Gated linear attention for TPU, with a gate per head: one kernel each way.

The grid is (B, sets of groups of heads, blocks of rows). The state stays on
chip between blocks and is written once per block for the backward pass. The
backward kernel walks from the last block to the first. Within a block it
recomputes the states forward, then walks backward over the chunks.

XLA sums the log decays of each chunk beforehand; `lra.kernels.gated.chunk` has
the formulas. These sums, float32 [B, sets, heads, L], have tokens on lanes, so
that memory does not pad them.
"""

import dataclasses
import functools

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from lra.kernels import dispatch, tpu
from lra.kernels.gated import decayed
from lra.kernels.xla import weighed

MULTIPLE = 16  # of head widths; others would be cut out of registers


def supported(shape, dtype, value_width=None, channels=False, groups=None):
  *_, heads, width = shape
  value_width, groups = value_width or width, groups or heads
  if channels:
    raise NotImplementedError(
        'pallas_tpu supports a gate of each head, not of each channel')
  if width % MULTIPLE or value_width % MULTIPLE:
    raise NotImplementedError(
        f'pallas_tpu supports head widths that are multiples of {MULTIPLE}, '
        f'got {width} for q and k, {value_width} for v')
  plan = _plan(shape, dtype, value_width, groups)
  if plan.heads > tpu.MAX_HEADS:
    raise NotImplementedError(
        f'pallas_tpu takes blocks of up to {tpu.MAX_HEADS} heads that fill '
        f'registers of {tpu.LANES} lanes; {heads} heads in {groups} groups, of '
        f'widths {width} and {value_width}, make {plan.heads} heads')
  needed = plan.memory()
  if needed > tpu.MAX_VMEM:
    raise NotImplementedError(
        f'pallas_tpu keeps states of {plan.heads} heads, {width} x '
        f'{value_width}, on chip, in at most {tpu.MAX_VMEM >> 20} MiB of '
        f'memory; they take {needed >> 20} MiB')


def forward(inputs, options, save):
  """Saves the states before blocks, [B, blocks, H, D, E]."""
  plan = _of(inputs, options)
  like = functools.partial(dispatch.like, inputs.v)
  b, heads = plan.batch, plan.num_heads
  outs = {'o': (plan.values(), like(tpu.flat(inputs.v).shape, plan.dtype)),
          'state': (plan.state(), like((b, heads, *plan.square), jnp.float32)),
          'saved': (plan.saved(), like(
              (b, plan.blocks, heads, *plan.square), plan.dtype)
                    if save else None)}
  found = _call(plan, _forward_kernel, _operands(plan, inputs, inputs.state),
                outs, products=4)
  o = found['o'].reshape(inputs.v.shape)
  return (o, found['state']), found['saved']


def backward(inputs, saved, cotangents, options):
  do, dstate = cotangents
  plan = _of(inputs, options, back=True)
  like = functools.partial(dispatch.like, inputs.v)
  sums = _sums(plan, inputs.log_decay)
  ins = {**_operands(plan, inputs, None), 'do': (plan.values(), tpu.flat(do)),
         'saved': (plan.saved(), saved), 'dstate': (plan.state(), dstate)}
  outs = {f'd{name}': (spec, like(tpu.flat(x).shape, plan.dtype))
          for name, spec, x in (('q', plan.keys(), inputs.q),
                                ('k', plan.keys(), inputs.k),
                                ('v', plan.values(), inputs.v))}
  outs['dg'] = plan.gates(), like(sums.shape, jnp.float32)
  outs['dstate'] = plan.state(), like(dstate.shape, jnp.float32)
  found = _call(plan, _backward_kernel, ins, outs, products=10,
                states=plan.count)
  dg = found['dg'].reshape(plan.batch, plan.num_heads, -1)
  dqkv = (found[f'd{name}'].reshape(getattr(inputs, name).shape)
          for name in 'qkv')
  return type(inputs)(
      *dqkv, jnp.swapaxes(dg, 1, 2)[:, :plan.length],
      None if inputs.state is None else found['dstate'])


@dataclasses.dataclass(frozen=True)
class _Plan:
  """Sizes of a call; `width` and `value_width` are D and E.

  A block has `groups` groups of `shared` heads, which share queries and keys,
  and `rows` tokens. With `back`, blocks go last to first.
  """
  batch: int
  length: int
  num_heads: int
  width: int
  value_width: int
  groups: int
  shared: int
  rows: int
  dtype: object
  scale: float = 1.0
  interpret: object = None
  back: bool = False

  @property
  def heads(self):
    return self.groups * self.shared

  @property
  def square(self):
    return self.width, self.value_width

  @property
  def blocks(self):
    return -(-self.length // self.rows)

  @property
  def chunk(self):
    return min(tpu.STEP, self.rows)

  @property
  def count(self):
    return self.rows // self.chunk

  def block(self, n):
    return self.blocks - 1 - n if self.back else n

  def keys(self):
    return pl.BlockSpec((1, self.rows, self.groups * self.width),
                        lambda b, s, n: (b, self.block(n), s))

  def values(self):
    return pl.BlockSpec((1, self.rows, self.heads * self.value_width),
                        lambda b, s, n: (b, self.block(n), s))

  def gates(self):
    return pl.BlockSpec((1, 1, self.heads, self.rows),
                        lambda b, s, n: (b, s, 0, self.block(n)))

  def state(self):
    return pl.BlockSpec((1, self.heads, *self.square),
                        lambda b, s, n: (b, s, 0, 0))

  def saved(self):
    return pl.BlockSpec((1, 1, self.heads, *self.square),
                        lambda b, s, n: (b, self.block(n), s, 0, 0))

  def memory(self):
    """Returns the bytes of on-chip memory that the backward kernel needs."""
    size = jnp.dtype(self.dtype).itemsize
    keys, values = (tpu.padded((self.rows, lanes), size) for lanes in (
        self.groups * self.width, self.heads * self.value_width))
    state = self.heads * tpu.padded(self.square, 4)
    gates = 2 * tpu.padded((self.heads, self.rows), 4)
    moved = 4 * keys + 3 * values + gates + 3 * state
    return 2 * moved + (self.count + 2) * state + tpu.SPARE


def _of(inputs, options, back=False):
  *lead, groups, width = inputs.q.shape
  heads, value_width = inputs.v.shape[2:]
  plan = _plan((*lead, heads, width), inputs.q.dtype, value_width, groups)
  return dataclasses.replace(plan, back=back, **options._asdict())


def _plan(shape, dtype, value_width, groups):
  batch, length, heads, width = shape
  shared = heads // groups
  taken = next((n for n in range(1, groups) if groups % n == 0
                and n * width % tpu.LANES == 0
                and n * shared * value_width % tpu.LANES == 0), groups)
  lanes = taken * max(width, shared * value_width)
  return _Plan(batch, length, heads, width, value_width, taken, shared,
               tpu.block_rows(length, lanes, dtype), dtype)


def _sums(plan, g_BxLxH):
  """Returns sums of log decays in each chunk, [B, sets, heads, L padded]."""
  g = jnp.maximum(jnp.swapaxes(g_BxLxH, 1, 2), decayed.LEAST)
  extra = plan.blocks * plan.rows - plan.length
  g = jnp.pad(g, ((0, 0), (0, 0), (0, extra)))
  sums = jnp.cumsum(g.reshape(*g.shape[:2], -1, plan.chunk), 3)
  return sums.reshape(plan.batch, -1, plan.heads, g.shape[2])


def _operands(plan, inputs, state):
  return {'q': (plan.keys(), tpu.flat(inputs.q)),
          'k': (plan.keys(), tpu.flat(inputs.k)),
          'v': (plan.values(), tpu.flat(inputs.v)),
          'sums': (plan.gates(), _sums(plan, inputs.log_decay)),
          'state': (plan.state(), state)}


def _call(plan, kernel, ins, outs, *, products, states=0):
  state = plan.heads, *plan.square
  tokens = plan.batch * plan.length * plan.num_heads
  return tpu.call(
      functools.partial(kernel, plan), ins, outs,
      grid=(plan.batch, plan.num_heads // plan.heads, plan.blocks),
      semantics=('parallel', 'parallel', 'arbitrary'),
      scratch=[state] + [(states, *state)] * bool(states),
      interpret=plan.interpret,
      flops=2 * products * tokens * max(plan.square) * plan.chunk,
      transcendentals=tokens * plan.chunk)


class _Chunk:

  def __init__(self, plan, ins, block, c):
    self.plan, self.ins = plan, ins
    at = c * plan.chunk
    self.rows = pl.ds(pl.multiple_of(at, plan.chunk), plan.chunk)
    self.there = None
    if plan.length % plan.rows:
      row = lax.broadcasted_iota(jnp.int32, (plan.chunk, 1), 0)
      self.there = row < plan.length - block * plan.rows - at
    shape = plan.chunk, plan.chunk
    self.i = lax.broadcasted_iota(jnp.int32, shape, 0)
    self.j = lax.broadcasted_iota(jnp.int32, shape, 1)

  def load(self, name, index):
    """Returns rows of q or k of a group, or of v or do of a head."""
    lane = self.lanes(name, index)
    return tpu.keep(self.there, getattr(self.ins, name)[0, self.rows, lane])

  def lanes(self, name, index):
    width = self.plan.width if name in 'qk' else self.plan.value_width
    return slice(index * width, (index + 1) * width)

  def decays(self, head):
    """Returns exp(c_i - c_j), exp(c_i), exp(c_last - c_i), exp(c_last)."""
    c_row = self.ins.sums[0, 0, head:head + 1, self.rows]
    c = self.column(c_row)
    last = c_row[:, -1:]
    within = jnp.where(self.i >= self.j, c - c_row, -jnp.inf)
    return jnp.exp(within), jnp.exp(c), jnp.exp(last - c), jnp.exp(last)

  def column(self, row):
    return jnp.where(self.i == self.j, row, 0).sum(1, keepdims=True)

  def behind(self, column):
    """Returns the row of sums over i >= j of a column, [1, C]."""
    return jnp.where(self.i >= self.j, column, 0).sum(0, keepdims=True)


def _forward_kernel(plan, ins, outs, state_scr):
  n, dtype = pl.program_id(2), plan.dtype
  nn, nt, tn = tpu.products(dtype)

  @pl.when(n == 0)
  def _():
    state_scr[...] = (jnp.zeros_like(state_scr) if ins.state is None
                      else ins.state[0])

  if outs.saved is not None:
    outs.saved[0, 0] = state_scr[...].astype(dtype)

  @pl.loop(0, plan.count)
  def _(c):
    chunk = _Chunk(plan, ins, plan.block(n), c)
    for group in range(plan.groups):
      q, k = chunk.load('q', group), chunk.load('k', group)
      scores = nt(q, k)
      for head in range(group * plan.shared, (group + 1) * plan.shared):
        within, start, end, over = chunk.decays(head)
        v, state = chunk.load('v', head), state_scr[head]
        o = nn((scores * within).astype(dtype), v)
        o += nn(q, state.astype(dtype)) * start
        outs.o[0, chunk.rows, chunk.lanes('v', head)] = (
            plan.scale * o).astype(dtype)
        state_scr[head] = state * over + tn(k, weighed(v, end))

  @pl.when(n == pl.num_programs(2) - 1)
  def _():
    outs.state[0] = state_scr[...]


def _backward_kernel(plan, ins, outs, dstate_scr, states_scr):
  n, dtype = pl.program_id(2), plan.dtype
  block = plan.block(n)
  nn, nt, tn = tpu.products(dtype)

  @pl.when(n == 0)
  def _():
    dstate_scr[...] = ins.dstate[0]

  states_scr[0] = ins.saved[0, 0].astype(jnp.float32)

  @pl.loop(0, plan.count - 1)
  def _(c):
    chunk = _Chunk(plan, ins, block, c)
    for head in range(plan.heads):
      _, _, end, over = chunk.decays(head)
      k, v = chunk.load('k', head // plan.shared), chunk.load('v', head)
      states_scr[c + 1, head] = states_scr[c, head] * over + tn(
          k, weighed(v, end))

  @pl.loop(0, plan.count)
  def _(step):
    c = plan.count - 1 - step
    chunk = _Chunk(plan, ins, block, c)
    for group in range(plan.groups):
      q, k = chunk.load('q', group), chunk.load('k', group)
      scores = nt(q, k)
      dq, dk = (jnp.zeros(x.shape, jnp.float32) for x in (q, k))
      dscores = jnp.zeros(scores.shape, jnp.float32)
      for head in range(group * plan.shared, (group + 1) * plan.shared):
        within, start, end, over = chunk.decays(head)
        v, do = chunk.load('v', head), chunk.load('do', head)
        do = weighed(do, plan.scale)
        before, dafter = states_scr[c, head], dstate_scr[head]
        before_e, dafter_e = before.astype(dtype), dafter.astype(dtype)
        weights, dweights = scores * within, nt(do, v)
        dscores += dweights * within
        do_start, v_end = weighed(do, start), weighed(v, end)
        dq += nt(do_start, before_e)
        dk += nt(v_end, dafter_e)
        dv_end = nn(k, dafter_e) * end
        dv = tn(weights.astype(dtype), do) + dv_end
        lane = chunk.lanes('v', head)
        outs.dv[0, chunk.rows, lane] = dv.astype(dtype)
        both = weights * dweights
        to_end = (dv_end * v.astype(jnp.float32)).sum(1, keepdims=True)
        dc = both.sum(1, keepdims=True) - to_end - chunk.column(
            both.sum(0, keepdims=True))
        from_start = nn(q, before_e) * start * do.astype(jnp.float32)
        dc += from_start.sum(1, keepdims=True)
        last = to_end.sum(0, keepdims=True) + over * (
            before * dafter).sum(1, keepdims=True).sum(0, keepdims=True)
        outs.dg[0, 0, head:head + 1, chunk.rows] = chunk.behind(dc) + last
        dstate_scr[head] = dafter * over + tn(q, do_start)
      dscores = dscores.astype(dtype)
      lane = chunk.lanes('q', group)
      outs.dq[0, chunk.rows, lane] = (dq + nn(dscores, k)).astype(dtype)
      outs.dk[0, chunk.rows, lane] = (dk + tn(dscores, q)).astype(dtype)

  @pl.when(n == pl.num_programs(2) - 1)
  def _():
    outs.dstate[0] = dstate_scr[...]
