"""The backward kernel of lightning attention for Hopper.

A block walks over pairs of chunks from the last to the first, with the
gradient dS of the state in registers, and in shared memory as bf16. The
forward kernel saved the state S in front of every pair: the lower chunk of a
pair uses it as it is, the upper one also looks at the keys and values of the
lower one, which are already on their way. Per chunk, in the words of
`kernels.chunks`, with A = (q k^T) * within and G = (do v^T) * within:
  dv = A^T do + to_end * (k dS)
  dk = G^T q + to_end * (v dS^T)
  dq = G k + from_start * (do S^T)
  dS = over * dS + q^T (from_start * do)
Warpgroup w makes columns 64 w to 64 w + 63 of each. With two warpgroups, the
first makes A and the second G.

With SiLU, q, k and v are what becomes of the operands as they arrive. The
gradients need the operands themselves: each warpgroup has its columns brought
a second time, into tiles that are not needed any more.
"""

import functools

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels import chunks, dispatch, hopper, hopper_call, hopper_columns
from kernels.hopper_columns import Columns
from kernels.lightning import silu


def run(inputs, saved, do, after, plan):
  """(gradients of q, k and v, of the bias, of the initial state).

  Args:
    inputs: `kernels.inputs.Inputs`.
    saved: bf16 [B, H, pairs, Dh, Dh], the state in front of every pair.
    do: bf16 [B, L, H, Dh].
    after: float32 [B, H, parts, Dh, Dh], the gradient of the state behind
      every part; None = zeros, with one part.
    plan: pallas_gpu.Plan.

  Returns:
    What `hopper_call.gradients` returns; float32 [3, H, Dh], or None where
    there is no bias or, with two warpgroups, no register left to sum it;
    float32 [B, H, Dh, Dh] or None.
  """
  b, _, h, d = plan.shape
  q, k, v = hopper_call.operands(inputs)
  names = 'dq', 'dk', 'dv'
  grads = dict(zip(names, hopper_call.gradients_like(inputs), strict=True))
  like = functools.partial(dispatch.like, do)
  dinitial = like((b, h, d, d), jnp.float32)
  bias = (None,) * 3
  if plan.warpgroups == 1:
    bias = hopper_columns.like(inputs, plan.parts, like)
  bias = dict(zip(('bias_q', 'bias_k', 'bias_v'), bias, strict=True))
  tools = hopper.Tools(plan.interpret is not None)
  stages = min(4 if plan.warpgroups == 1 else 2, 2 * plan.per_part)
  outs = hopper_call.call(
    'lightning_backward',
    functools.partial(_kernel, plan=plan, tools=tools),
    {
      'q': q,
      'k': k,
      'v': v,
      'do': do,
      'saved': saved,
      'mask': hopper_call.mask_rows(inputs.mask),
      'slopes': inputs.slopes,
      'after': after,
    },
    {
      **grads,
      **bias,
      'dinitial': None if inputs.state is None else dinitial,
    },
    blocks=(b, h, plan.parts),
    scratch=_scratch(tools, plan, stages, inputs.mask is not None),
    warpgroups=plan.warpgroups,
    interpret=plan.interpret,
    # Of the states, and inside a chunk; of every other one with the next.
    products=4 + 6 * hopper.TILE / d,
  )
  grads = hopper_call.gradients(inputs, *(outs[name] for name in names))
  bias = hopper_columns.total([outs[name] for name in bias])
  return grads, bias, outs['dinitial']


def _scratch(tools, plan, stages, masked):
  w = plan.warpgroups
  state_stages = 2 if w == 1 else 1
  barrier = functools.partial(plgpu.Barrier, num_barriers=stages)
  state_barrier = functools.partial(plgpu.Barrier, num_barriers=state_stages)
  numbers = plgpu.SMEM((stages, hopper.TILE), jnp.float32)
  return {
    'left': tools.moved(stages, 2, w),  # q and do
    'right': tools.moved(stages, 2, w),  # k and v
    'mask': numbers if masked else None,
    'scores': tools.tiles(2),  # A and G
    'do_start': tools.moved(w),  # later dv
    'dstate': tools.tiles(w, w),
    'end': plgpu.SMEM((w, hopper.TILE), jnp.float32),
    'state': tools.tiles(state_stages, w, w),
    'spare': tools.tiles(w) if tools.simulate else None,
    'left_full': barrier(num_arrivals=2 * w),
    'right_full': barrier(num_arrivals=2 * w + masked),
    'free': barrier(num_arrivals=w),
    'state_full': state_barrier(num_arrivals=w * w),
    'state_free': state_barrier(num_arrivals=w),
    'v_again': plgpu.Barrier(num_barriers=w) if plan.silu else None,
    'qk_again': (
      plgpu.Barrier(num_arrivals=2, num_barriers=w) if plan.silu else None
    ),
    'ones': tools.factors(1, 1) if w == 1 else None,
    'met': plgpu.Barrier(num_arrivals=w),
    'done': plgpu.Barrier(num_arrivals=w),
  }


def _kernel(ins, outs, scratch, *, plan, tools):
  block = _Block(ins, outs, scratch, plan, tools)
  block.ring.start()
  block.states.start()
  end = chunks.to_end(block.slope, tools.columns(), hopper.TILE)
  tools.publish((scratch.end.at[block.w], end))
  dstate = tuple(block.first_dstate(i) for i in block.numbers)
  first = [scratch.dstate.at[i, block.w] for i in block.numbers]
  tools.publish(*zip(first, dstate, strict=True))

  def pair(p, carry):
    carry = block.chunk(p, 2 * p, *carry, upper=True)
    return block.chunk(p, 2 * p + 1, *carry, upper=False)

  carry = dstate, block.columns.zeros()
  dstate, bias = lax.fori_loop(0, block.pairs, pair, carry)
  if bias:
    targets = outs.bias_q, outs.bias_k, outs.bias_v
    block.columns.store(bias, targets, (block.b, block.h, block.part))
  if outs.dinitial is not None:

    @pl.when(block.part == 0)
    def _():
      for i, x in enumerate(dstate):
        where = block.b, block.h, hopper.tile(i), hopper.tile(block.w)
        outs.dinitial[where] = x

  plgpu.wait_smem_to_gmem(0)


class _Block:
  """The walk of one block. Step t is the t-th chunk from the end."""

  def __init__(self, ins, outs, scratch, plan, tools):
    self.b, self.h, self.part, self.w = hopper.place(
      plan.warpgroups, plan.shape[2]
    )
    self.ins, self.outs, self.scratch = ins, outs, scratch
    self.plan, self.tools = plan, tools
    self.numbers = hopper.numbers(plan.warpgroups)
    self.first = self.part * plan.per_part
    self.pairs = plan.per_part
    if plan.pairs % plan.per_part:
      self.pairs = jnp.minimum(self.pairs, plan.pairs - self.first)
    self.left, self.left_lines = tools.views(scratch.left)
    self.right, self.right_lines = tools.views(scratch.right)
    self.do_start, self.do_start_lines = tools.views(scratch.do_start)
    self.ring = hopper.Ring(
      scratch.free.shape[0], 2 * self.pairs, self._fetch, scratch.free
    )
    self.states = hopper.Ring(
      scratch.state_free.shape[0],
      self.pairs,
      self._fetch_state,
      scratch.state_free,
    )
    count = 0 if outs.bias_q is None else 3
    self.columns = Columns(tools, scratch.ones, self.w, count)
    self.slope = ins.slopes[self.h]
    self.rows = tools.index()
    within = chunks.within(self.slope, tools.index(0), tools.index(1))
    self.within = within * plan.scale
    self.start = chunks.from_start(self.slope, self.rows) * plan.scale

  def _number(self, step):
    """The chunk of a step; an odd count has an empty chunk at the end."""
    return 2 * (self.first + self.pairs) - 1 - step

  def _fetch(self, step, slot):
    n, ins, scratch = self._number(step), self.ins, self.scratch
    left_full = scratch.left_full.at[slot]
    right_full = scratch.right_full.at[slot]
    # Keys and values first: the chunk before looks at them.
    for lines, full, sources in (
      (self.right_lines, right_full, (ins.k, ins.v)),
      (self.left_lines, left_full, (ins.q, ins.do)),
    ):
      for m, source in enumerate(sources):
        target = lines.at[slot, m]
        hopper.copy_chunk(
          source, self.b, n, self.h, target, full, self.plan.warpgroups
        )
    if ins.mask is not None:
      plgpu.copy_gmem_to_smem(
        ins.mask.at[self.b, hopper.at(n)], scratch.mask.at[slot], right_full
      )

  def _fetch_state(self, step, slot):
    pair = self.first + self.pairs - 1 - step
    for i in range(self.plan.warpgroups):
      for j in range(self.plan.warpgroups):
        columns = hopper.tile(i), hopper.tile(j)
        plgpu.copy_gmem_to_smem(
          self.ins.saved.at[self.b, self.h, pair, *columns],
          self.scratch.state.at[slot, i, j],
          self.scratch.state_full.at[slot],
        )

  def first_dstate(self, i):
    if self.ins.after is None:
      return self.tools.zeros()
    where = self.b, self.h, self.part, hopper.tile(i), hopper.tile(self.w)
    return self.tools.load_global(self.ins.after, where)

  def meet(self):
    hopper.meet(self.scratch.met, self.plan.warpgroups)

  def chunk_done(self):
    """This warpgroup has used the scores of its chunk."""
    if self.plan.warpgroups > 1:
      plgpu.barrier_arrive(self.scratch.done)

  def await_last(self, t):
    """Waits until all have used the scores of the chunk before step t."""
    if self.plan.warpgroups > 1:
      pl.when(t > 0)(lambda: plgpu.barrier_wait(self.scratch.done))

  def chunk(self, p, t, dstate, bias, upper):
    """One chunk; `upper` of a pair or not. Returns the new dS and sums."""
    return _Chunk(self, p, t, upper).run(dstate, bias)


class _Chunk:
  """One step of a block.

  Attributes:
    p, t: number of the pair and of the chunk, from the end.
    upper: the later chunk of a pair, or the earlier.
    w, numbers: the warpgroup and the tiles of a chunk, as indices.
  """

  def __init__(self, block, p, t, upper):
    self.block, self.p, self.t, self.upper = block, p, t, upper
    self.tools, self.scratch = block.tools, block.scratch
    self.slot, self.n = block.ring.slot(t), block._number(t)
    # Indices that the compiler does not know: it would hoist the matrix
    # descriptor of every tile out of the loop and fill the registers. Zero
    # for every slope, negative ones and NaN included.
    below = jnp.abs(block.slope) * t.astype(jnp.float32) < 0
    self.zero = jnp.where(below, 1, 0)
    self.w = block.w + self.zero
    self.numbers = [i + self.zero for i in block.numbers]
    self.members = hopper.numbers(2)
    self.q, self.do = (block.left.at[self.slot, m] for m in self.members)
    self.k, self.v = (block.right.at[self.slot, m] for m in self.members)
    scores = self.scratch.scores
    self.scores = [scores.at[m + self.zero] for m in self.members]
    self.dstate = self.scratch.dstate
    self.do_start = block.do_start.at[self.w]

  def run(self, dstate, bias):
    """(dS, sums for the bias of q, k, v) after this chunk."""
    block, tools, w = self.block, self.tools, self.w
    if self.upper:
      self._take(block.right, self.scratch.right_full, self.slot, (0, 1))
    self._take(block.left, self.scratch.left_full, self.slot, (0,))
    self._meet_if_changed()
    self._publish_scores()
    # What the last chunk sent has been read: its tiles may be used again.
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
    self._publish_do_start()
    block.ring.release(self.t - 1)
    if self.upper:
      block.states.release(self.p - 1)
    block.meet()

    exist = block.plan.shape[1] - self.n * hopper.TILE
    exist = jnp.clip(exist, 0, hopper.TILE)
    dstate = self._dstate(dstate, exist)
    end = hopper.row(chunks.to_end(block.slope, block.rows, exist))
    # Results take the place of tiles that only this warpgroup still needed,
    # or that nobody needs any more.
    if block.plan.silu:
      plgpu.commit_smem()
      self._again('v', block.do_start_lines.at[w], self.scratch.v_again)
    dv = self._dv(end)
    if block.plan.silu:
      plgpu.barrier_wait(self.scratch.v_again.at[w])
      dv = self._before_silu(dv, self.do_start)
    tools.publish((self.do_start, dv))
    # Here, for the tile is used again.
    bias = *bias[:2], *block.columns.add(bias[2:], self.do_start)
    self._send(block.do_start_lines.at[w], block.outs.dv)
    dk = self._dk(end)
    block.meet()
    new = [self.dstate.at[i, w] for i in self.numbers]
    stores = (self.q.at[w], dk), *zip(new, dstate, strict=True)
    if block.plan.silu:
      plgpu.wait_smem_to_gmem(0, wait_read_only=True)
      tools.publish(*stores)
      v_lines = block.right_lines.at[self.slot, 1, w]
      self._again('k', v_lines, self.scratch.qk_again)
      self._again('q', block.do_start_lines.at[w], self.scratch.qk_again)
      dq = self._dq()
      plgpu.barrier_wait(self.scratch.qk_again.at[w])
      dq = self._before_silu(dq, self.do_start)
      tools.publish((self.k.at[w], dq))
      dk = self._before_silu(tools.load(self.q.at[w]), self.v.at[w])
      tools.publish((self.q.at[w], dk))
      self._send(block.left_lines.at[self.slot, 0, w], block.outs.dk)
    else:
      tools.publish(*stores)
      self._send(block.left_lines.at[self.slot, 0, w], block.outs.dk)
      tools.publish((self.k.at[w], self._dq()))
    self._send(block.right_lines.at[self.slot, 0, w], block.outs.dq)
    sums = block.columns.add(bias[:2], self.k.at[w], self.q.at[w])
    block.chunk_done()
    return dstate, (*sums, *bias[2:])

  def _again(self, name, lines, full):
    """Brings this warpgroup's columns of an operand into a free tile."""
    block = self.block
    source = getattr(block.ins, name)
    columns = hopper.tile(block.w)
    plgpu.copy_gmem_to_smem(
      source.at[block.b, hopper.at(self.n), block.h, columns],
      lines,
      full.at[self.w],
    )

  def _before_silu(self, grad, operand):
    """The gradient of an operand from that of its SiLU."""
    slope = silu.slope(self.tools.load(operand))
    # Masked rows of the operand may hold NaN; their gradients are 0.
    slope = jnp.where(grad == 0, 0.0, slope)
    return (grad.astype(jnp.float32) * slope).astype(jnp.bfloat16)

  def _valid(self, slot):
    if self.block.ins.mask is None:
      return None
    return self.tools.load(self.scratch.mask.at[slot], hopper.ROWS)

  def _take(self, tiles, full, slot, operands):
    """Waits for two tensors of a slot: SiLU, and 0 in masked rows.

    `operands` says which of the two are operands, and so have SiLU.
    """
    plgpu.barrier_wait(full.at[slot])
    if not self._changes():
      return
    valid = self._valid(slot)
    for m, member in enumerate(self.members):
      activate = self.block.plan.silu and m in operands
      if valid is not None or activate:
        ref = tiles.at[slot, member, self.w]
        x = self.tools.load(ref)
        x = silu.silu(x) if activate else x
        self.tools.publish((ref, hopper.keep(valid, x)))

  def _changes(self):
    """Whether operands are not used as they arrive."""
    return self.block.ins.mask is not None or self.block.plan.silu

  def _meet_if_changed(self):
    if self._changes():
      self.block.meet()

  def _publish_scores(self):
    """A and G, into shared memory."""
    block, slot = self.block, self.slot
    alone = block.plan.warpgroups == 1
    mine = self.members if alone else [self.w]
    left, right = block.left.at[slot], block.right.at[slot]
    scores = self.tools.products(
      *(
        [(left.at[m, i], hopper.turned(right.at[m, i])) for i in self.numbers]
        for m in mine
      )
    )
    block.await_last(self.t)
    self.tools.publish(
      *(
        (self.scratch.scores.at[m], x * block.within)
        for m, x in zip(mine, scores, strict=True)
      )
    )

  def _publish_do_start(self):
    do = self.tools.load(self.do.at[self.w]).astype(jnp.float32)
    self.tools.publish((self.do_start, do * hopper.row(self.block.start)))

  def _dstate(self, dstate, exist):
    left = chunks.over(self.block.slope, exist)
    return self.tools.add(
      *(
        (x * left, [(hopper.turned(self.q.at[i]), self.do_start)])
        for i, x in zip(self.numbers, dstate, strict=True)
      )
    )

  def _dv(self, end):
    w = self.w
    terms = ((self.k.at[i], self.dstate.at[i, w]) for i in self.numbers)
    dv = self.tools.product(*terms) * end
    terms = [(hopper.turned(self.scores[0]), self.do.at[w])]
    return self.tools.add((dv, terms))[0]

  def _dk(self, end):
    w, turned = self.w, hopper.turned
    terms = ((self.v.at[i], turned(self.dstate.at[w, i])) for i in self.numbers)
    dk = self.tools.product(*terms) * end
    terms = [(turned(self.scores[1]), self.q.at[w])]
    return self.tools.add((dk, terms))[0].astype(jnp.bfloat16)

  def _dq(self):
    block, tools, w = self.block, self.tools, self.w
    state_slot = block.states.slot(self.p)
    if self.upper:
      ahead, k_low = self._look_ahead()
      plgpu.barrier_wait(self.scratch.state_full.at[state_slot])
    state = self.scratch.state.at[state_slot + self.zero, w]
    dq = tools.product(
      *((self.do.at[i], hopper.turned(state.at[i])) for i in self.numbers)
    )
    if self.upper:
      dq = dq * chunks.over(block.slope, hopper.TILE)
      (dq,) = tools.add((dq, [(ahead, k_low.at[w])]))
    dq = dq * hopper.row(block.start)
    (dq,) = tools.add((dq, [(self.scores[1], self.k.at[w])]))
    return dq

  def _look_ahead(self):
    """(do v^T) * to_end for the lower chunk of the pair, and its keys."""
    block, tools = self.block, self.tools
    low = block.ring.slot(self.t + 1)
    self._take(block.right, self.scratch.right_full, low, (0, 1))
    self._meet_if_changed()
    k_low, v_low = (block.right.at[low, m] for m in self.members)
    ahead = tools.product(
      *((self.do.at[i], hopper.turned(v_low.at[i])) for i in self.numbers)
    )
    end = tools.load(self.scratch.end.at[self.w], hopper.COLS)
    spare = self.scratch.spare.at[self.w] if tools.simulate else None
    return tools.operand(ahead * hopper.col(end), spare), k_low

  def _send(self, line, target):
    """Starts to write a tile to this warpgroup's columns of a result."""
    block = self.block
    columns = hopper.tile(block.w)
    plgpu.copy_smem_to_gmem(
      line, target.at[block.b, hopper.at(self.n), block.h, columns]
    )
