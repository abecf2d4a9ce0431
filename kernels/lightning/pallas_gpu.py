"""Lightning attention for Hopper: one kernel forward, one backward.

The state of the recurrence is in registers and stored once per pair of chunks
for the backward kernel. If B * H is too small to fill the device, L is cut into
parts. Then `hopper_sums` first computes each part's addition to the state,
which reads two tensors once more.
"""

import dataclasses

import jax.numpy as jnp

from lra.kernels import chunks, hopper, hopper_call, hopper_sums
from lra.kernels.lightning import pallas_gpu_backward, pallas_gpu_forward

PAIR = 2 * hopper.TILE


def supported(shape, dtype, state=False):
  del state  # initial and final states are supported
  hopper_call.supported(shape, dtype)


@dataclasses.dataclass(frozen=True)
class Plan:
  """Static parameters of a call with q of `shape` (B, L, H, Dh).

  Attributes:
    parts: number of parts of L.
    per_part: pairs of chunks in a part; the last part may have fewer.
    scale: factor of the result.
    silu: whether to apply SiLU to q, k and v first.
    interpret: the interpreter's parameters or None.
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
    """Returns each part's addition to the state: [B, H, parts, Dh, Dh]."""
    plan = hopper_sums.Plan(
        length=self.shape[1], warpgroups=self.warpgroups, parts=self.parts,
        reverse=reverse, scale=self.scale,
        silu=('x' if reverse else 'xy') if self.silu else '',
        interpret=self.interpret, stages=min(4, 2 * self.per_part),
        chunks_per_part=2 * self.per_part)
    return hopper_sums.sums(x, y, mask, plan, slopes)[0]


def _parts(blocks, pairs):
  """Returns the number of parts of L: 1 unless that uses under half of the SMs.
  """
  sms = hopper_call.sm_count()
  if 2 * blocks > sms:
    return 1
  parts = max(1, min(pairs // 2, sms // blocks))
  return -(-pairs // -(-pairs // parts))


def forward(inputs, options, save):
  (q, k, v), mask = hopper_call.operands(inputs), inputs.mask
  slopes, initial_state = inputs.slopes, inputs.state
  plan = Plan.of(q.shape, options)
  before = None
  if initial_state is not None:
    before = initial_state[:, :, None]
  if plan.parts > 1:
    sums = plan.sums(k, v, mask, slopes, reverse=False)
    before = _states_before(sums, slopes, initial_state, plan)
  return pallas_gpu_forward.run(q, k, v, mask, slopes, before,
                                options.return_state, save, plan)


def backward(inputs, saved, do, dfinal_state, options):
  plan, slopes = Plan.of(inputs.shape, options), inputs.slopes
  after = None
  if dfinal_state is not None:
    after = dfinal_state[:, :, None]
  if plan.parts > 1:
    q, *_ = hopper_call.operands(inputs)
    sums = plan.sums(q, do, inputs.mask, slopes, reverse=True)
    after = _gradients_after(sums, slopes, dfinal_state, plan)
  return pallas_gpu_backward.run(inputs, saved, do, after, plan)


def _states_before(sums, slopes, initial_state, plan):
  """Returns the state before every part: [B, H, parts, Dh, Dh]."""
  if initial_state is None:
    initial_state = jnp.zeros_like(sums[:, :, 0])
  first = jnp.concatenate([initial_state[:, :, None], sums[:, :, :-1]], axis=2)
  return _prefix(first, slopes, plan)


def _gradients_after(sums, slopes, dfinal_state, plan):
  """Returns the state's gradient after every part: [B, H, parts, Dh, Dh]."""
  if dfinal_state is None:
    dfinal_state = jnp.zeros_like(sums[:, :, 0])
  rows = plan.shape[1] - (plan.parts - 1) * plan.rows_per_part
  left_H = chunks.over(slopes, rows)
  last = sums[:, :, -1] + left_H[:, None, None] * dfinal_state
  later = [last[:, :, None], sums[:, :, -2:0:-1]]
  after = _prefix(jnp.concatenate(later, axis=2), slopes, plan)[:, :, ::-1]
  return jnp.concatenate([after, dfinal_state[:, :, None]], axis=2)


def _prefix(x_BxHxPxDxE, slopes, plan):
  x = jnp.swapaxes(x_BxHxPxDxE, 1, 2)
  x = chunks.prefix(x, slopes * plan.rows_per_part)
  return jnp.swapaxes(x, 1, 2)
