"""Compares softmax attention with float64; tests the choice of a kernel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from lra import kernels
from lra.kernels import reference
from lra.kernels.softmax import chunked
from tests.helpers import errors
from tests.helpers.errors import relative_rms
from tests.helpers.gradients import with_gradients
from tests.helpers.softmax import (
  check,
  in_blocks,
  inputs,
  resolve,
  up_to,
)

LENGTHS = [
  (1, 9),
  (17, 40),
  pytest.param(16, 16, marks=pytest.mark.full),
  pytest.param(65, 33, marks=pytest.mark.full),
]
X = jnp.ones((2, 8, 2, 32))


@pytest.mark.parametrize('length, keys', LENGTHS)
def test_chunked(length, keys):
  q, k, v = inputs(length, keys, value_width=5)
  mask = up_to(keys, keys, (keys + 1) // 2, 0)
  attend = functools.partial(in_blocks(16), mask=mask, scale=0.7)
  check(attend, q, k, v, mask, 0.7)


@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_one_key_gives_its_value_and_no_gradient_of_the_weights(kernel):
  q, k, v = inputs(3, 1)
  attend = functools.partial(kernels.softmax_attention, kernel=kernel)
  out, dq, dk, dv = with_gradients(attend)(np.ones_like(q), q, k, v)
  assert relative_rms(out, np.broadcast_to(v, out.shape)) < 1e-6
  assert max(np.abs(dq).max(), np.abs(dk).max()) < 1e-5
  assert relative_rms(dv, np.full(dv.shape, 3)) < 1e-6


def test_chunked_takes_any_mask_and_large_logits():
  q, k, v = inputs(40, 70)
  q *= 30  # logits of several hundred: exp overflows without the maximum
  mask = np.random.default_rng(2).random((3, 70)) < 0.5
  mask[0, :16] = False  # every key of the first block is masked
  attend = functools.partial(in_blocks(16), mask=mask, scale=1.0)
  check(attend, q, k, v, mask, 1.0)


@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
@pytest.mark.parametrize('masked', (False, True))
def test_keys_that_are_not_there_take_no_part_below_any_logit(kernel, masked):
  """Masked keys and tile padding get weight 0 even if real logits are -4e32.

  Gradients are compared too.
  """
  q, k, v = inputs(9, 9)
  q, k = np.full_like(q, 1e16), np.full_like(k, -1e16)  # logits of -4e32
  mask = up_to(9, 9, 4, 1) if masked else np.ones((3, 9), bool)
  given = jnp.asarray(mask) if masked else None
  v = np.where(mask[:, :, None, None], v, 1000).astype(np.float32)
  attend = functools.partial(
    kernels.softmax_attention, mask=given, scale=0.5, kernel=kernel
  )
  do = np.ones_like(v)
  out, *_, dv = with_gradients(attend)(do, q, k, v)
  want, *_, dwant = reference.softmax(q, k, v, mask, do)
  assert relative_rms(out, want) < 1e-6
  assert relative_rms(dv, dwant) < 1e-6


@pytest.mark.full
@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_second_gradients_of_a_sequence_without_keys_are_zero(kernel):
  q, k, v = inputs(5, 9)
  attend = functools.partial(
    kernels.softmax_attention, mask=jnp.zeros((3, 9), bool), kernel=kernel
  )
  first = jax.grad(lambda q: (attend(q, k, v) ** 2).sum())
  second = jax.grad(lambda q: (first(q) * q).sum())(q)
  np.testing.assert_array_equal(second, 0)


def test_dense():
  q, k, v = inputs(17, 40, value_width=5)
  mask = up_to(40, 40, 7, 0)
  attend = functools.partial(
    kernels.softmax_attention, mask=jnp.asarray(mask), kernel='dense'
  )
  check(attend, q, k, v, mask, 8**-0.5)


@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_without_a_mask_all_keys_take_part(kernel):
  q, k, v = inputs(20, 30)
  attend = functools.partial(kernels.softmax_attention, kernel=kernel)
  check(attend, q, k, v, np.ones((3, 30), bool), 8**-0.5)


@pytest.mark.parametrize('groups', (1, 2))
@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_heads_in_a_row_share_a_head_of_keys(kernel, groups):
  """Grouped heads equal attention with repeated keys and values."""
  rng = np.random.default_rng(0)
  q, k, v, do = (
    rng.normal(size=(3, *shape)).astype(np.float32)
    for shape in ((17, 6, 8), (40, groups, 8), (40, groups, 5), (17, 6, 5))
  )
  mask = up_to(40, 40, 11, 0)
  attend = functools.partial(
    kernels.softmax_attention, mask=jnp.asarray(mask), kernel=kernel
  )
  got = with_gradients(attend)(do, q, k, v)
  repeated = (np.repeat(x, 6 // groups, axis=2) for x in (k, v))
  out, dq, *dkv = reference.softmax(q, *repeated, mask, do)
  want = [out, dq] + [
    x.reshape(3, 40, groups, -1, x.shape[-1]).sum(3) for x in dkv
  ]
  for x, y in zip(got, want, strict=True):
    assert x.shape == y.shape and relative_rms(x, y) < 1e-5


def test_shared_keys_and_values_are_not_copied():
  """Temporary memory is smaller than copies of keys and values for 16 heads."""
  q = jax.ShapeDtypeStruct((1, 64, 16, 32), jnp.float32)
  k = jax.ShapeDtypeStruct((1, 8192, 1, 32), jnp.float32)
  compiled = (
    jax.jit(functools.partial(kernels.softmax_attention, kernel='chunked'))
    .lower(q, k, k)
    .compile()
  )
  copies = 2 * 16 * 8192 * 32 * 4
  assert compiled.memory_analysis().temp_size_in_bytes < copies / 2


@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_a_sequence_without_keys_gives_exactly_zero(kernel):
  q, k, v = inputs(20, 30)
  mask = jnp.asarray(up_to(30, 30, 1, 0))
  attend = functools.partial(
    kernels.softmax_attention, mask=mask, kernel=kernel
  )
  for x in with_gradients(attend)(np.ones_like(q), q, k, v):
    np.testing.assert_array_equal(x[2], 0)
    assert np.any(x[0])


@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_bfloat16(kernel):
  q, k, v = (x.astype(jnp.bfloat16) for x in inputs(100, 100))
  mask = up_to(100, 100, 37, 0)
  attend = functools.partial(
    kernels.softmax_attention, mask=jnp.asarray(mask), kernel=kernel
  )
  check(attend, q, k, v, mask, 8**-0.5, 6e-3)
  out = jax.jit(attend)(q, k, v)
  want, *_ = reference.softmax(q, k, v, mask, out)
  assert relative_rms(out, want) < 4e-3


def test_the_table_of_errors_has_softmax():
  case = errors.Case(20, 1, 8, mask='empty')
  lines, good = errors.table([case], ['dense', 'chunked'])
  dense_line, chunked_line = lines[2:]
  assert good and '| softmax | 8 | float32 | plain | dense | ' in dense_line
  assert chunked_line.startswith('| softmax | 8 | float32 | plain | chunked | ')


def test_block_sizes_cover_the_length_with_little_padding():
  for length in (1, 7, 511, 512, 513, 2001, 4001):
    size = chunked.block_size(length, 512)
    blocks = -(-length // size)
    assert size <= 512 and size % 8 == 0
    assert blocks == -(-length // 512)
    assert blocks * size - length < 8 * blocks


def test_sharded_over_the_batch():
  mesh = jax.make_mesh((4,), ('data',), axis_types=(AxisType.Auto,))
  rng = np.random.default_rng(0)
  q, k, v = rng.normal(size=(3, 4, 20, 2, 8)).astype(np.float32)
  mask = jnp.asarray(up_to(20, 20, 7, 3, 0))
  split = kernels.sharded(kernels.softmax_attention, mesh)
  drop = {'dropout_rate': 0.5, 'dropout_key': jax.random.key(0)}
  for options in ({}, drop, {**drop, 'kernel': 'dense'}):
    got, want = (
      jax.jit(functools.partial(attend, mask=mask, **options))(q, k, v)
      for attend in (split, kernels.softmax_attention)
    )
    assert relative_rms(got, want) < 1e-6


def test_auto_is_chunked_on_a_processor_and_under_dropout():
  with kernels.target('cpu'):
    assert resolve('auto') == 'chunked'
    assert resolve(None, jnp.float32) == 'chunked'
    assert resolve('chunked') == 'chunked'
    assert resolve('dense', value_width=3) == 'dense'
  for platform in ('cpu', 'gpu', 'tpu'):
    with kernels.target(platform):
      assert resolve('auto', dropout_rate=0.1) == 'chunked'


@pytest.mark.parametrize(
  'kind, kernel, platform, needs, words',
  [
    (ValueError, 'flash', 'cpu', {}, "^kernel must be 'auto' or one of"),
    (NotImplementedError, 'cudnn', 'gpu', {'dropout_rate': 0.1}, 'rate of 0'),
    (NotImplementedError, 'splash', 'tpu', {'dropout_rate': 0.1}, 'rate of 0'),
    (NotImplementedError, 'cudnn', 'gpu', {}, '16-bit dtype, not float32'),
    (NotImplementedError, 'cudnn', 'cpu', {}, 'needs a gpu device'),
    (NotImplementedError, 'splash', 'gpu', {}, 'needs a tpu device'),
  ],
)
def test_impossible_kernels_are_refused(kind, kernel, platform, needs, words):
  options = {'dropout_key': jax.random.key(0), **needs} if needs else {}
  with kernels.target(platform):
    with pytest.raises(kind, match=words):
      resolve(kernel, jnp.float32, **needs)
    with pytest.raises(kind, match=words):
      kernels.softmax_attention(X, X, X, kernel=kernel, **options)


@pytest.mark.parametrize(
  'word, args, options',
  [
    ('^q must be a non-empty array', (X[0], X, X), {}),
    ('^k must be a non-empty array', (X, X[:, :0], X[:, :0]), {}),
    ('^q must be float32 or .*, got int32', (X.astype(jnp.int32),) * 3, {}),
    ('^k must have the dtype of q', (X, X.astype('bfloat16'), X), {}),
    ('^k must be ', (X, X[..., :9], X), {}),
    ('^k must be ', (X[:, :, :1], X, X), {}),
    ('^v must be .* with the B, S, G of k', (X, X, X[:, :7]), {}),
    ('^v must be .* with the B, S, G of k', (X, X[:, :, :1], X), {}),
    ('^mask must be bool', (X[:, :3], X, X), {'mask': X[:, :, 0, 0]}),
    ('^mask must be bool', (X, X, X), {'mask': jnp.ones((2, 7), bool)}),
    ('^scale must be finite', (X, X, X), {'scale': np.inf}),
    ('^dropout_rate must be', (X, X, X), {'dropout_rate': 1.0}),
    ('^dropout_rate must be', (X, X, X), {'dropout_rate': -0.1}),
    ('^dropout_key must be given', (X, X, X), {'dropout_rate': 0.1}),
  ],
  ids=str,
)
def test_arguments(word, args, options):
  with pytest.raises(ValueError, match=word):
    kernels.softmax_attention(*args, **options)
