"""Compiles programs for real TPU targets on a machine without a TPU."""

import jax
import jax.numpy as jnp
import pytest

from lra import kernels
from tests.helpers import aot
from tests.helpers.errors import FUNCTIONS
from tests.helpers.gradients import descriptions
from tools import hlo

pytestmark = pytest.mark.full

TOKENS = 128 * 1024
HEADS = 4
# (L, Dh); 2,001 is 2,000 tokens plus a class token, not a multiple of a block.
SIZES = [(1024, 64), (16384, 64), (1024, 128), (16384, 128)]
EVERY = [('v5e', op, *size) for op in FUNCTIONS for size in SIZES] + [
  (target, op, *size)
  for target in aot.TPU
  for op in FUNCTIONS
  for size in ((16384, 64), (1024, 128))
  if target != 'v5e'
]
ODD = [('v5e', op, 2001, 64) for op in FUNCTIONS] + [
  ('v5e', op, 300, width) for op in FUNCTIONS for width in (8, 32)
]
# Bytes moved, in tensors [B, L, H, Dh]: 4 or 7, plus mask and states.
MOST = {'forward': 4.1, 'backward': 7.4}
MOST_SHORT = {'forward': 4.1, 'backward': 8.5}  # states are a larger share


def _compiled(target, op, direction, length, width, dtype=jnp.bfloat16):
  descriptions(target)
  shape = (-(-TOKENS // length), length, HEADS, width)
  program = aot.compiled(op, 'pallas_tpu', direction, target, shape, dtype)
  tensor = TOKENS * HEADS * width * jnp.dtype(dtype).itemsize
  return program, tensor


def _large(text, tensor):
  """Returns (op, shape) of non-kernel operations of `tensor` bytes or more."""
  computations, entry = hlo.parse(text)
  free = ('parameter', 'bitcast', 'tuple', 'get-tuple-element', 'custom-call')
  return [
    (o.op, o.shape)
    for o in computations[entry]
    if o.op not in free and hlo.size(o.shape.replace('S(1)', '')) >= tensor
  ]


@pytest.mark.parametrize('direction', aot.PASSES)
@pytest.mark.parametrize('target, op, length, width', EVERY + ODD)
def test_the_program_is_the_kernel_and_nothing_else(
  target, op, length, width, direction
):
  program, tensor = _compiled(target, op, direction, length, width)
  text = program.as_text()
  assert text.count('custom_call_target="tpu_custom_call"') == 1
  if HEADS * width % 128:
    return  # rows are padded to 128 lanes, which needs copies
  assert not _large(text, tensor)
  assert program.memory_analysis().temp_size_in_bytes < tensor / 10
  moved, _ = hlo.count(text)
  most = MOST if length >= 1024 else MOST_SHORT
  assert moved <= most[direction] * tensor


@pytest.mark.parametrize('direction', aot.PASSES)
@pytest.mark.parametrize('op', ('linear', 'lightning'))
def test_float32_compiles(op, direction):
  program, tensor = _compiled('v5e', op, direction, 4096, 64, jnp.float32)
  assert not _large(program.as_text(), tensor)


def test_a_copy_would_be_seen():
  """A transposed operand shows as a large operation."""
  shape = (32, 4096, 4, 128)  # too large for memory on chip
  descriptions('v5e')
  program = aot.compiled('linear', 'xla', 'forward', 'v5e', shape, jnp.bfloat16)
  tensor = 32 * 4096 * 4 * 128 * 2
  assert _large(program.as_text(), tensor)
  assert hlo.count(program.as_text())[0] > 5 * tensor


def test_vmap_over_slopes_compiles():
  """vmap over slopes, which are scalars in SMEM, compiles."""
  describe = descriptions('v5e')
  x = describe((2, 1024, 4, 64), jnp.bfloat16)
  slopes = describe((3, 4), jnp.float32)

  def attend(slopes, x):
    return kernels.lightning_attention(
      x, x, x, slopes=slopes, kernel='pallas_tpu'
    )

  with kernels.target('tpu'):
    program = jax.jit(jax.vmap(attend, in_axes=(0, None))).lower(slopes, x)
    text = program.compile().as_text()
  assert text.count('custom_call_target="tpu_custom_call"') == 1


@pytest.mark.parametrize(
  'op, heads, width, dtype',
  [
    ('linear', 1, 1, 'bfloat16'),
    ('lightning', 4, 7, 'float32'),
    ('linear', 8, 48, 'bfloat16'),
    ('lightning', 8, 80, 'bfloat16'),
    ('linear', 4, 96, 'float32'),
    ('lightning', 2, 192, 'bfloat16'),
    ('linear', 1, 512, 'float32'),
    ('lightning', 2, 1024, 'bfloat16'),
  ],
)
def test_any_head_width_compiles_with_all_there_is(op, heads, width, dtype):
  """Packed calls with biases and states compile for any head width."""
  text = _everything('v5e', op, (2, 1000, heads, width), dtype)
  assert text.count('custom_call_target="tpu_custom_call"') == 2
  if 128 <= heads * width <= 1024:  # narrower arguments have another layout
    tensor = 2 * 1000 * heads * width * jnp.dtype(dtype).itemsize
    assert not hlo.copies(text, tensor)


def _everything(target, op, shape, dtype):
  """Returns compiled text of both passes of a packed call with all options."""
  describe = descriptions(target)

  def array(*shape, dtype='float32'):
    return describe(shape, dtype)

  b, length, h, d = shape
  state = array(b, h, d, d)
  if op == 'linear':
    state = state, array(b, h, d)
  options = {'activation': 'silu'} if op == 'lightning' else {}
  attend = getattr(kernels, f'{op}_attention_packed')

  def both(qkv, bias, state, mask, do, last):
    def forward(qkv, bias, state):
      out, last = attend(
        qkv.reshape(b, length, 3, h, d),
        bias=bias,
        mask=mask,
        initial_state=state,
        return_state=True,
        kernel='pallas_tpu',
        **options,
      )
      return out.reshape(b, length, h * d), last

    out, pull = jax.vjp(forward, qkv, bias, state)
    return out, pull((do, last))

  with kernels.target('tpu'):
    lowered = jax.jit(both).lower(
      array(b, length, 3 * h * d, dtype=dtype),
      array(3, h, d),
      state,
      array(b, length, dtype=bool),
      array(b, length, h * d, dtype=dtype),
      state,
    )
  return lowered.compile().as_text()
