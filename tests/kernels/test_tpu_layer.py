"""A layer round the TPU kernels, compiled for real targets: no copies.

  y = op(x W + b) W_o, with x [B, L, D], W [D, 3 D], D = H Dh
"""

import functools
import re

import jax
import jax.numpy as jnp
import pytest

import kernels
from kernels.tools import aot, hlo

pytestmark = pytest.mark.full

BATCH, LENGTH = 8, 4096
OPS = {
  'linear': kernels.linear_attention_packed,
  'simpletron': kernels.simpletron_attention_packed,
  'lightning': functools.partial(
    kernels.lightning_attention_packed, activation='silu'
  ),
}
HEADS = (4, 64), (8, 64), (4, 128), (4, 32)
# Tensors of [B, L, D]: x -> qkv 4, kernel 4, out -> y 2; and backward dy -> do
# 2, dW_o 2, kernel 7, dqkv -> dx 4, dW 4.
FLOOR = {'forward': 10, 'both': 10 + 19}
# What comes on top of the floor: weights, mask, saved states of lightning.
MOST = {'forward': 1.02, 'both': 1.04}


@pytest.mark.parametrize('direction', FLOOR)
@pytest.mark.parametrize('heads, width', HEADS)
@pytest.mark.parametrize('op', OPS)
@pytest.mark.parametrize('target', ('v5e', 'v6e'))
def test_a_layer_moves_what_its_parts_must(
  target, op, heads, width, direction, record_property
):
  text = _program(target, op, heads, width, direction)
  assert text.count('custom_call_target="tpu_custom_call"') == (
    1 if direction == 'forward' else 2
  )
  tensor = 2 * BATCH * LENGTH * heads * width
  assert not hlo.copies(_without_prefetches(text), tensor // 2)
  moved = hlo.count(_without_prefetches(text))[0] / tensor
  record_property('ratio', moved / FLOOR[direction])
  assert FLOOR[direction] <= moved <= MOST[direction] * FLOOR[direction]


@pytest.mark.parametrize('direction', FLOOR)
@pytest.mark.parametrize('op', OPS)
def test_a_layer_narrower_than_a_register_holds_no_copy(op, direction):
  text = _without_prefetches(_program('v5e', op, 2, 32, direction))
  assert not hlo.copies(text, BATCH * LENGTH * 64)


def test_operands_apart_are_copied_and_seen():
  """The test above can fail: three views of one product are copies."""
  op = kernels.linear_attention

  def apart(qkv, bias, **options):
    del bias
    return op(*(qkv[:, :, i] for i in range(3)), **options)

  text = _program('v5e', apart, 4, 64, 'both')
  tensor = 2 * BATCH * LENGTH * 4 * 64
  assert hlo.copies(_without_prefetches(text), tensor // 2)
  assert hlo.count(_without_prefetches(text))[0] > 1.3 * 29 * tensor


def _program(target, op, heads, width, direction):
  try:
    place = jax.sharding.SingleDeviceSharding(aot.device(target))
  except aot.Unavailable as reason:
    pytest.skip(str(reason))
  d = heads * width
  split = 3, heads, width
  attend = OPS.get(op, op)

  def forward(x, w, bias, w_o, mask):
    qkv = x @ w + jax.lax.stop_gradient(bias).astype(x.dtype)
    out = attend(
      qkv.reshape(BATCH, LENGTH, *split),
      bias=bias.reshape(split),
      mask=mask,
      kernel='pallas_tpu',
    )
    return out.reshape(BATCH, LENGTH, d) @ w_o

  def both(dy, mask, *args):
    y, pull = jax.vjp(lambda *a: forward(*a, mask), *args)
    return y, pull(dy)

  def array(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

  x, mask = array(BATCH, LENGTH, d), array(BATCH, LENGTH, dtype=bool)
  weights = array(d, 3 * d), array(3 * d, dtype=jnp.float32), array(d, d)
  with kernels.target('tpu'):
    if direction == 'forward':
      lowered = jax.jit(forward).lower(x, *weights, mask)
    else:
      lowered = jax.jit(both).lower(x, mask, x, *weights)
  return lowered.compile().as_text()


def _without_prefetches(text):
  """The program as if all arrays were in device memory.

  These are small enough for a chip to keep most of them on chip, which is what
  larger ones would not be.
  """
  kept = []
  for line in text.replace('S(1)', '').splitlines():
    if re.search(r' (copy|slice)-start\(', line):
      continue
    if 'custom_call_target="ConcatBitcast"' in line:
      line = line.replace(' custom-call(', ' bitcast(')
    kept.append(line)
  return '\n'.join(kept)
