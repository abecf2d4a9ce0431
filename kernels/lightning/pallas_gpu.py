"""Lightning attention for Hopper: one kernel forward, one backward.

The state of the recurrence is in registers and stored once per pair of chunks
for the backward kernel. If B * H is too small to fill the device, L is cut into
parts. Then `hopper_sums` first computes each part's addition to the state,
which reads two tensors once more.
"""

import dataclasses

from lra.kernels import chunks, hopper, hopper_call, hopper_sums
from lra.kernels.lightning import pallas_gpu_backward, pallas_gpu_forward

PAIR = 2 * hopper.TILE


def supported(shape, dtype, state=False):
  del state  # initial and final states are supported
  hopper_call.supported(shape, dtype)


@dataclasses.dataclass(frozen=True)
class Plan:
  """Static parameters of a call with q of `shape` (B, L, H, Dh).

  L has `parts` parts of `per_part` pairs of chunks; the last may have fewer.
  """
  shape: tuple
  parts: int
  per_part: int
  scale: float
  silu: bool
  interpret: object

  @classmethod
  def of(cls, shape, options):
    b, length, h, _ = shape
    pairs = -(-length // PAIR)
    parts = _parts(b * h, pairs)
    per_part = -(-pairs // parts)
    silu = options.activation == 'silu'
    return cls(shape, parts, per_part, options.scale, silu, options.interpret)

  @property
  def warpgroups(self):
    return self.shape[3] // hopper.TILE

  @property
  def pairs(self):
    return -(-self.shape[1] // PAIR)

  @property
  def rows_per_part(self):
    return self.per_part * PAIR

  def sums(self, x, y, mask, slopes, reverse):
    plan = hopper_sums.Plan(
        length=self.shape[1], warpgroups=self.warpgroups, parts=self.parts,
        reverse=reverse, scale=self.scale,
        silu=('x' if reverse else 'xy') if self.silu else '',
        interpret=self.interpret, stages=min(4, 2 * self.per_part),
        chunks_per_part=2 * self.per_part)
    return hopper_sums.sums(x, y, mask, plan, slopes)[0]


def _parts(blocks, pairs):
  sms = hopper_call.sm_count()
  if 2 * blocks > sms:
    return 1
  parts = max(1, min(pairs // 2, sms // blocks))
  return -(-pairs // -(-pairs // parts))


def forward(inputs, options, save):
  """Saves the states before pairs of chunks, bf16 [B, H, pairs, Dh, Dh]."""
  (q, k, v), mask = hopper_call.operands(inputs), inputs.mask
  slopes, initial_state = inputs.slopes, inputs.state
  plan = Plan.of(q.shape, options)
  before = None
  if initial_state is not None:
    before = initial_state[:, :, None]
  if plan.parts > 1:
    sums = plan.sums(k, v, mask, slopes, reverse=False)
    before = chunks.before_parts(sums, slopes, initial_state,
                                 plan.rows_per_part)
  out, final, saved = pallas_gpu_forward.run(
      q, k, v, mask, slopes, before, options.return_state, save, plan)
  return (out, final), saved


def backward(inputs, saved, cotangents, options):
  plan, (do, dfinal) = Plan.of(inputs.shape, options), cotangents
  after = None
  if dfinal is not None:
    after = dfinal[:, :, None]
  if plan.parts > 1:
    q, *_ = hopper_call.operands(inputs)
    sums = plan.sums(q, do, inputs.mask, inputs.slopes, reverse=True)
    after = chunks.after_parts(sums, inputs.slopes, dfinal,
                               plan.rows_per_part, plan.shape[1])
  return pallas_gpu_backward.run(inputs, saved, do, after, plan)
