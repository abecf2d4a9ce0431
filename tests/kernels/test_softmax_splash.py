"""Tests our calls of splash attention: results, and compiled TPU programs."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from lra import kernels
from tests.helpers import errors, reference
from tests.helpers.errors import Case, relative_rms
from tests.helpers.gradients import descriptions, with_gradients
from tests.helpers.products import at_the_highest

# Covers each length, width, mask and dtype; not all combinations.
CASES = [
  Case(1, 1, 32, 'float32', 'full', 0),
  Case(1, 2, 64, 'bfloat16', 'empty', 1),
  Case(63, 3, 128, 'bfloat16', 'ragged', 2),
  Case(128, 2, 64, 'float32', 'full', 3),
  Case(128, 1, 32, 'bfloat16', 'full', 4),
  Case(200, 2, 32, 'float32', 'empty', 5),
  Case(513, 1, 128, 'float32', 'ragged', 6),
  Case(513, 2, 64, 'bfloat16', 'empty', 7),
]
attend = functools.partial(kernels.softmax_attention, kernel='splash')


@pytest.fixture
def interpreted():
  with kernels.target('tpu', interpret=True):
    yield


def _inputs(length, keys, width, value_width, dtype='float32', heads=2):
  """Returns (q, k, v, do) and a mask with one example of each kind."""
  rng = np.random.default_rng(length)
  sizes = ((length, width), (keys, width), (keys, value_width),
           (length, value_width))  # fmt: skip
  arrays = [
    jnp.asarray(rng.standard_normal((4, n, heads, d)), dtype) for n, d in sizes
  ]
  mask = np.ones((4, keys), bool)
  mask[1, keys // 3 :] = False
  mask[2] = rng.random(keys) < 0.5
  mask[3] = False
  return arrays, jnp.asarray(mask)


def _same(got, want, bound=1e-5):
  for x, y in zip(got, want, strict=True):
    assert relative_rms(x, y) < bound


@pytest.mark.parametrize('case', [
  Case(63, 2, 64, 'bfloat16', 'empty', 0),
  *(pytest.param(case, marks=pytest.mark.full) for case in CASES)], ids=str)
def test_equals_float64(case):
  with errors.simulated('splash'):
    found = errors.measure('softmax', 'splash', case)
  assert errors.within(found, case.dtype), found


@pytest.mark.full
@pytest.mark.parametrize('length, keys, width, value_width, heads', [
  (130, 270, 32, 64, 2), (300, 300, 288, 300, 1)])
def test_other_sizes(interpreted, length, keys, width, value_width, heads):
  """Tests other keys than queries, and several blocks of wide heads."""
  (q, k, v, do), mask = _inputs(length, keys, width, value_width, heads=heads)
  got = with_gradients(functools.partial(attend, mask=mask))(do, q, k, v)
  _same(got, reference.softmax(q, k, v, mask, do))
  for x in got:  # all keys are masked
    np.testing.assert_array_equal(x[3], 0)


@pytest.mark.parametrize('keys', (128, 130))
def test_without_a_mask_padding_takes_no_part(interpreted, keys):
  (q, k, v, do), _ = _inputs(40, keys, 16, 16)
  got = with_gradients(attend)(do, q, k, v)
  _same(got, reference.softmax(q, k, v, np.ones((4, keys), bool), do))


@pytest.mark.parametrize('masked', (False, True))
def test_masked_keys_take_no_part_down_to_the_logit_it_gives_them(
  interpreted, masked
):
  """Masked keys are ignored unless real logits are below the kernel's limit.

  The kernel gives masked keys a logit of -0.7 times the largest float32.
  """
  (_, _, v, _), mask = _inputs(9, 9, 8, 8)
  if not masked:
    mask = jnp.ones_like(mask)
  v = jnp.where(mask[:, :, None, None], v, 1000)
  want, *_ = reference.softmax(v * 0, v * 0, v, mask, v)
  for logit, found in ((-2.3e38, True), (-2.5e38, False)):
    q = jnp.zeros_like(v).at[..., 0].set(1e19)
    k = jnp.zeros_like(v).at[..., 0].set(logit / 1e19)
    out = attend(q, k, v, mask=mask if masked else None, scale=1.0)
    assert (relative_rms(out, want) < 1e-5) == found


def test_a_shard_map_that_checks_vma_is_refused():
  mesh = jax.make_mesh(
    (2,), ('data',), axis_types=(AxisType.Auto,), devices=jax.devices()[:2]
  )
  split = jax.sharding.PartitionSpec('data')
  inside = jax.shard_map(
    lambda x: attend(x, x, x), mesh=mesh, in_specs=split, out_specs=split
  )
  with kernels.target('tpu'):
    with pytest.raises(ValueError, match='check_vma=False'):
      jax.eval_shape(inside, jnp.ones((2, 8, 1, 8)))


@pytest.mark.parametrize('dtype', ('float32', 'bfloat16'))
def test_float32_products_run_at_the_highest_precision(interpreted, dtype):
  """Inspects the program: the interpreter never rounds, a TPU might."""
  (q, k, v, do), mask = _inputs(8, 8, 8, 8, dtype)
  program = jax.make_jaxpr(with_gradients(
    functools.partial(attend, mask=mask)))(do, q, k, v)
  highest = [high for _, high in at_the_highest(program.jaxpr)]
  assert len(highest) >= 9  # forward 2, keys and values 4, queries 3
  assert all(highest) if dtype == 'float32' else not any(highest)


def _compiled(target, kernel, shape, keys, value_width, dtype, backward):
  """Compiles softmax attention for a TPU, without having one."""
  describe = descriptions(target)
  b, length, h, d = shape
  function = functools.partial(kernels.softmax_attention, kernel=kernel)
  shapes = (length, d), (keys, d), (keys, value_width), (length, value_width)
  arrays = [describe((b, n, h, width), dtype) for n, width in shapes]

  def both(q, k, v, do, mask):
    run = functools.partial(function, mask=mask)
    return with_gradients(run)(do, q, k, v) if backward else run(q, k, v)

  with kernels.target('tpu'):
    program = jax.jit(both).lower(*arrays, describe((b, keys), bool))
    return program.compile()


def _weights(program, shape, keys):
  """Returns shapes in `program` at least as large as the attention weights."""
  shapes = set(re.findall(r'\w\[([\d,]+)\]', program.as_text()))
  values = shape[0] * shape[1] * shape[2] * keys
  return [s for s in shapes if math.prod(map(int, s.split(','))) >= values]


@pytest.mark.full
@pytest.mark.parametrize(
  'target, backward, shape, keys, value_width, dtype',
  [
    ('v6e', False, (2, 4096, 4, 64), 4096, 64, 'bfloat16'),
    ('v6e', True, (2, 4096, 4, 64), 4096, 64, 'bfloat16'),
    ('v5e', True, (2, 4096, 4, 64), 4096, 64, 'bfloat16'),
    ('v6e', True, (2, 2001, 4, 64), 2001, 64, 'bfloat16'),
    ('v6e', True, (2, 1024, 4, 128), 1024, 128, 'float32'),
    ('v6e', True, (2, 600, 2, 32), 700, 64, 'bfloat16'),
    ('v6e', True, (2, 63, 3, 8), 63, 8, 'float32'),
    ('v5e', True, (1, 1024, 2, 256), 1024, 256, 'float32'),
    ('v6e', True, (1, 1024, 1, 512), 1024, 512, 'float32'),
  ],
)
def test_it_compiles_for_tpus_and_keeps_no_weights(
  target, shape, keys, value_width, dtype, backward
):
  program = _compiled(
    target, 'splash', shape, keys, value_width, dtype, backward
  )
  calls = program.as_text().count('custom_call_target="tpu_custom_call"')
  assert calls == (3 if backward else 1)
  if shape[1] >= 1024:  # else the operands are as large as the weights
    assert not _weights(program, shape, keys)


@pytest.mark.full
def test_weights_would_be_seen():
  shape = (2, 2001, 4, 64)
  program = _compiled('v5e', 'dense', shape, 2001, 64, 'bfloat16', False)
  assert _weights(program, shape, 2001)
