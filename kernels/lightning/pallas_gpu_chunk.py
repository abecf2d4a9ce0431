"""One chunk of the backward kernel of lightning attention for Hopper.

In the notation of `lra.kernels.chunks`, with A = (q k^T) * within and
G = (do v^T) * within:
  dv = A^T do + to_end * (k dS)
  dk = G^T q + to_end * (v dS^T)
  dq = G k + from_start * (do S^T)
  dS = over * dS + q^T (from_start * do)
Warpgroup w computes columns 64 w to 64 w + 63 of each. With two warpgroups, the
first computes A and the second G. With SiLU, q, k and v here mean SiLU of the
loaded operands; each warpgroup loads its columns again for their gradients.
"""

import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

from lra.kernels import chunks, hopper
from lra.kernels.linear import features


class Chunk:
  """Chunk t from the end, of pair p; `upper` for the later chunk of a pair."""

  def __init__(self, block, p, t, upper):
    self.block, self.p, self.t, self.upper = block, p, t, upper
    self.tools, self.scratch = block.tools, block.scratch
    self.slot, self.n = block.ring.slot(t), block.number(t)
    # A zero that the compiler does not know, to be added to indices. With known
    # indices the compiler would hoist the matrix descriptor of every tile out
    # of the loop and fill the registers. Even a NaN slope gives zero here.
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
    """Returns (dS, sums for the bias of q, k, v) after this chunk."""
    block, tools, w = self.block, self.tools, self.w
    if self.upper:
      self._take(block.right, self.scratch.right_full, self.slot, (0, 1))
    self._take(block.left, self.scratch.left_full, self.slot, (0,))
    self._meet_if_changed()
    self._publish_scores()
    # Waits until the stores of the previous chunk have read their tiles.
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
    # Results overwrite tiles that no other warpgroup needs any more.
    if block.plan.silu:
      plgpu.commit_smem()
      self._again('v', block.do_start_lines.at[w], self.scratch.v_again)
    dv = self._dv(end)
    if block.plan.silu:
      plgpu.barrier_wait(self.scratch.v_again.at[w])
      dv = self._before_silu(dv, self.do_start)
    tools.publish((self.do_start, dv))
    # Sums dv now, because its tile is overwritten below.
    if not block.tight:
      dv_sum = block.columns.add(bias[2:], self.do_start, zero=self.zero)
      bias = *bias[:2], *dv_sum
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
    bias = self._with_dq_dk(bias)
    block.chunk_done()
    return dstate, bias

  def _with_dq_dk(self, bias):
    """Adds dq and dk to the sums for the bias; if `tight`, stores their sums.
    """
    block, w = self.block, self.w
    columns, outs = block.columns, block.outs
    # Tiles that now hold the gradients.
    dq, dk = self.k.at[w], self.q.at[w]
    first = columns.zeros() if block.tight else bias[:2]
    sums = columns.add(first, dq, dk, zero=self.zero)
    if not block.tight:
      return *sums, *bias[2:]
    where = block.b, block.h, self.n
    columns.store(sums, (outs.bias_q, outs.bias_k), where)
    return bias

  def _again(self, name, lines, full):
    """Loads this warpgroup's columns of an operand into a free tile again."""
    block = self.block
    source = getattr(block.ins, name)
    columns = hopper.tile(block.w)
    plgpu.copy_gmem_to_smem(
        source.at[block.b, hopper.at(self.n), block.h, columns], lines,
        full.at[self.w])

  def _before_silu(self, grad, operand):
    # Masked rows of the operand may hold NaN; their gradients are 0.
    operand = hopper.keep(self._valid(self.slot), self.tools.load(operand))
    slope = features.silu_slope(operand)
    return (grad.astype(jnp.float32) * slope).astype(jnp.bfloat16)

  def _valid(self, slot):
    if self.block.ins.mask is None:
      return None
    return self.tools.load(self.block.mask(slot), hopper.ROWS)

  def _take(self, tiles, full, slot, operands):
    """Waits for a slot; SiLU for `operands`, 0 in masked rows."""
    plgpu.barrier_wait(full.at[slot])
    if not self._changes():
      return
    valid = self._valid(slot)
    for m, member in enumerate(self.members):
      activate = self.block.plan.silu and m in operands
      if valid is not None or activate:
        ref = tiles.at[slot, member, self.w]
        x = self.tools.load(ref)
        x = features.silu(x) if activate else x
        self.tools.publish((ref, hopper.keep(valid, x)))

  def _changes(self):
    return self.block.ins.mask is not None or self.block.plan.silu

  def _meet_if_changed(self):
    if self._changes():
      self.block.meet()

  def _publish_scores(self):
    block, slot = self.block, self.slot
    alone = block.plan.warpgroups == 1
    mine = self.members if alone else [self.w]
    left, right = block.left.at[slot], block.right.at[slot]
    scores = self.tools.products(
        *([(left.at[m, i], hopper.turned(right.at[m, i])) for i in self.numbers]
          for m in mine))
    block.await_last(self.t)
    within = block.decay.within(self.zero)
    self.tools.publish(*((self.scratch.scores.at[m], x * within)
                         for m, x in zip(mine, scores, strict=True)))

  def _publish_do_start(self):
    do = self.tools.load(self.do.at[self.w]).astype(jnp.float32)
    start = hopper.row(self.block.decay.from_start(self.zero))
    self.tools.publish((self.do_start, do * start))

  def _dstate(self, dstate, exist):
    left = chunks.over(self.block.slope, exist)
    return self.tools.add(
        *((x * left, [(hopper.turned(self.q.at[i]), self.do_start)])
          for i, x in zip(self.numbers, dstate, strict=True)))

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
        *((self.do.at[i], hopper.turned(state.at[i])) for i in self.numbers))
    if self.upper:
      dq = dq * chunks.over(block.slope, hopper.TILE)
      (dq,) = tools.add((dq, [(ahead, k_low.at[w])]))
    dq = dq * hopper.row(block.decay.from_start(self.zero))
    (dq,) = tools.add((dq, [(self.scores[1], self.k.at[w])]))
    return dq

  def _look_ahead(self):
    """Returns (do v^T) * to_end for the lower chunk of the pair, and its keys.
    """
    block, tools = self.block, self.tools
    low = block.ring.slot(self.t + 1)
    self._take(block.right, self.scratch.right_full, low, (0, 1))
    self._meet_if_changed()
    k_low, v_low = (block.right.at[low, m] for m in self.members)
    ahead = tools.product(
        *((self.do.at[i], hopper.turned(v_low.at[i])) for i in self.numbers))
    end = tools.load(self.block.end, hopper.COLS)
    spare = self.scratch.spare.at[self.w] if tools.simulate else None
    return tools.operand(ahead * hopper.col(end), spare), k_low

  def _send(self, line, target):
    block = self.block
    columns = hopper.tile(block.w)
    plgpu.copy_smem_to_gmem(
        line, target.at[block.b, hopper.at(self.n), block.h, columns])


class Decay:
  """`chunks.within` and `chunks.from_start` of a tile, times the scale.

  If `kept`, they stay in registers, 34 per thread.
  """

  def __init__(self, tools, slope, scale, kept):
    self.tools, self.slope, self.scale = tools, slope, scale
    self._kept = None
    if kept:
      self._kept = self._within(0), self._from_start(0)

  def within(self, zero):
    """Returns a float32 tile [64, 64]; `zero` is 0, unknown to the compiler.

    With a known 0 the compiler would compute the tile once and keep it.
    """
    return self._kept[0] if self._kept else self._within(zero)

  def from_start(self, zero):
    return self._kept[1] if self._kept else self._from_start(zero)

  def _within(self, zero):
    rows, cols = self.tools.index(0) + zero, self.tools.index(1)
    return chunks.within(self.slope, rows, cols) * self.scale

  def _from_start(self, zero):
    rows = self.tools.index() + zero
    return chunks.from_start(self.slope, rows) * self.scale
