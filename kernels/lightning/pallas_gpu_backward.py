"""The backward kernel of lightning attention for Hopper.

A block walks over pairs of chunks from the last to the first. The gradient dS
of the state is in registers, and in shared memory as bf16. The lower chunk of a
pair uses the saved state S directly. The upper one also reads the keys and
values of the lower one. `pallas_gpu_chunk` computes one chunk.
"""

import functools

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from lra.kernels import chunks, dispatch, hopper, hopper_call
from lra.kernels.hopper import Columns
from lra.kernels.lightning.pallas_gpu_chunk import Chunk, Decay


def run(inputs, saved, do, after, plan):
  """Returns gradients like `inputs`.

  `after` is the gradient of the state after every part; None = zeros, only with
  one part.
  """
  b, _, h, d = plan.shape
  tight = _tight(plan, inputs.bias is not None)
  q, k, v = hopper_call.operands(inputs)
  names = 'dq', 'dk', 'dv'
  grads = dict(zip(names, hopper_call.gradients_like(inputs), strict=True))
  like = functools.partial(dispatch.like, do)
  dinitial = like((b, h, d, d), jnp.float32)
  count = 2 * plan.pairs if tight else plan.parts
  bias = hopper.column_sums(inputs, count, like)
  bias = dict(zip(('bias_q', 'bias_k', 'bias_v'), bias, strict=True))
  if tight:
    bias['bias_v'] = None
  tools = hopper.Tools(plan.interpret is not None)
  stages = min(4 if plan.warpgroups == 1 else 2, 2 * plan.per_part)
  # `products` counts matmuls with states (4), and those within a chunk and
  # between the two chunks of a pair (6 TILE / d).
  outs = hopper_call.call(
      'lightning_backward', functools.partial(_kernel, plan=plan, tools=tools),
      {'q': q, 'k': k, 'v': v, 'do': do, 'saved': saved,
       'mask': hopper_call.mask_rows(inputs.mask), 'slopes': inputs.slopes,
       'after': after},
      {**grads, **bias, 'dinitial': None if inputs.state is None else dinitial},
      blocks=(b, h, plan.parts), scratch=_scratch(tools, plan, stages, inputs),
      warpgroups=plan.warpgroups, interpret=plan.interpret,
      products=4 + 6 * hopper.TILE / d)
  grads, bias = ([outs[name] for name in x] for x in (names, bias))
  if tight:
    grads[0] = grads[0].reshape(inputs.arrays[0].shape)
    bias[2] = grads[0][:, :, 2].sum(1, dtype=jnp.float32)[:, :, None]
  return hopper_call.gradients(inputs, grads, hopper.bias_gradient(bias),
                               outs['dinitial'])


def _tight(plan, biased):
  """Returns whether registers are too few to carry the bias's sums.

  A block then writes the sums of dq and dk after every chunk, and XLA sums dv.
  """
  return biased and plan.warpgroups > 1


def _scratch(tools, plan, stages, inputs):
  w, masked = plan.warpgroups, inputs.mask is not None
  state_stages = 2 if w == 1 else 1
  barrier = functools.partial(plgpu.Barrier, num_barriers=stages)
  state_barrier = functools.partial(plgpu.Barrier, num_barriers=state_stages)
  numbers = 1 + stages * masked
  return {
      'left': tools.moved(stages, 2, w),  # q and do
      'right': tools.moved(stages, 2, w),  # k and v
      'scores': tools.tiles(2),  # A and G
      'do_start': tools.moved(w),  # later holds dv
      'dstate': tools.tiles(w, w),
      # `end` and the mask of every slot share a buffer: each buffer takes at
      # least 1 KB, so separate ones would not fit.
      'numbers': plgpu.SMEM((numbers, hopper.TILE), jnp.float32),
      'state': tools.tiles(state_stages, w, w),
      'spare': tools.tiles(w) if tools.simulate else None,
      'left_full': barrier(num_arrivals=2 * w),
      'right_full': barrier(num_arrivals=2 * w + masked),
      'free': barrier(num_arrivals=w),
      'state_full': state_barrier(num_arrivals=w * w),
      'state_free': state_barrier(num_arrivals=w),
      'v_again': plgpu.Barrier(num_barriers=w) if plan.silu else None,
      'qk_again': plgpu.Barrier(num_arrivals=2, num_barriers=w)
                  if plan.silu else None,
      'ones': None if inputs.bias is None else tools.factors(1, 1),
      'met': plgpu.Barrier(num_arrivals=w),
      'done': plgpu.Barrier(num_arrivals=w),
  }


def _kernel(ins, outs, scratch, *, plan, tools):
  block = _Block(ins, outs, scratch, plan, tools)
  block.ring.start()
  block.states.start()
  end = chunks.to_end(block.slope, tools.columns(), hopper.TILE)
  pl.when(block.w == 0)(lambda: tools.publish((block.end, end)))
  dstate = tuple(block.first_dstate(i) for i in block.numbers)
  first = [scratch.dstate.at[i, block.w] for i in block.numbers]
  tools.publish(*zip(first, dstate, strict=True))

  def pair(p, carry):
    carry = block.chunk(p, 2 * p, *carry, upper=True)
    return block.chunk(p, 2 * p + 1, *carry, upper=False)

  carry = dstate, block.first_sums()
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
  """The loop of one block. Step t is the t-th chunk from the end."""

  def __init__(self, ins, outs, scratch, plan, tools):
    self.b, self.h, self.part, self.w = hopper.place(plan.warpgroups,
                                                     plan.shape[2])
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
    self.end = scratch.numbers.at[0]
    self.ring = hopper.Ring(scratch.free.shape[0], 2 * self.pairs, self._fetch,
                            scratch.free)
    self.states = hopper.Ring(scratch.state_free.shape[0], self.pairs,
                              self._fetch_state, scratch.state_free)
    biased = outs.bias_q is not None
    self.tight = _tight(plan, biased)
    count = (2 if self.tight else 3) if biased else 0
    self.columns = Columns(tools, scratch.ones, self.w, count)
    self.slope = ins.slopes[self.h]
    # SiLU and the bias's sums leave no registers to keep the decay in.
    kept = not (biased or plan.silu)
    self.decay = Decay(tools, self.slope, plan.scale, kept)
    self.rows = tools.index()

  def number(self, step):
    """Returns the chunk of a step; of an odd number, the last is empty."""
    return 2 * (self.first + self.pairs) - 1 - step

  def _fetch(self, step, slot):
    n, ins, scratch = self.number(step), self.ins, self.scratch
    left_full = scratch.left_full.at[slot]
    right_full = scratch.right_full.at[slot]
    # Keys and values are fetched first: the step before reads them already.
    for lines, full, sources in ((self.right_lines, right_full, (ins.k, ins.v)),
                                 (self.left_lines, left_full, (ins.q, ins.do))):
      for m, source in enumerate(sources):
        target = lines.at[slot, m]
        hopper.copy_chunk(source, self.b, n, self.h, target, full,
                          self.plan.warpgroups)
    if ins.mask is not None:
      plgpu.copy_gmem_to_smem(ins.mask.at[self.b, hopper.at(n)],
                              self.mask(slot), right_full)

  def mask(self, slot):
    return self.scratch.numbers.at[1 + slot]

  def _fetch_state(self, step, slot):
    pair = self.first + self.pairs - 1 - step
    for i in range(self.plan.warpgroups):
      for j in range(self.plan.warpgroups):
        columns = hopper.tile(i), hopper.tile(j)
        plgpu.copy_gmem_to_smem(
            self.ins.saved.at[self.b, self.h, pair, *columns],
            self.scratch.state.at[slot, i, j], self.scratch.state_full.at[slot])

  def first_dstate(self, i):
    if self.ins.after is None:
      return self.tools.zeros()
    where = self.b, self.h, self.part, hopper.tile(i), hopper.tile(self.w)
    return self.tools.load_global(self.ins.after, where)

  def first_sums(self):
    return () if self.tight else self.columns.zeros()

  def meet(self):
    hopper.meet(self.scratch.met, self.plan.warpgroups)

  def chunk_done(self):
    if self.plan.warpgroups > 1:
      plgpu.barrier_arrive(self.scratch.done)

  def await_last(self, t):
    if self.plan.warpgroups > 1:
      pl.when(t > 0)(lambda: plgpu.barrier_wait(self.scratch.done))

  def chunk(self, p, t, dstate, bias, upper):
    return Chunk(self, p, t, upper).run(dstate, bias)
