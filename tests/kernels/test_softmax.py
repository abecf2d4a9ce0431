"""Compares softmax attention, with bias and dropout, with float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import random_bits
from lra.kernels.softmax import chunked
from tests.helpers import reference
from tests.helpers.errors import relative_rms
from tests.helpers.gradients import with_gradients
from tests.helpers.softmax import attend_dense, check, in_blocks, inputs, up_to

FULL = pytest.mark.full
NAMES = ('out', 'dq', 'dk', 'dv', 'dbias')
KERNELS = {'dense': attend_dense, 'chunked': in_blocks(16)}
GROUPS = {'cpu groups': in_blocks(16, limit=1),
          'gpu groups': in_blocks(16, 'gpu', 2**12),
          'gpu': in_blocks(16, 'gpu')}
RATE, KEY = 0.3, jax.random.key(3)
each = pytest.mark.parametrize('kernel', KERNELS)


def public(kernel, **options):
  return functools.partial(kernels.softmax_attention, kernel=kernel, **options)


@each
@pytest.mark.parametrize('length, keys', [
  (1, 9), (17, 40), *(pytest.param(*x, marks=FULL)
                      for x in ((16, 16), (65, 33)))])
def test_equals_float64(kernel, length, keys):
  q, k, v = inputs(length, keys, value_width=5)
  mask = up_to(keys, keys, (keys + 1) // 2, 0)
  attend = functools.partial(KERNELS[kernel], mask=mask, scale=0.7)
  check(attend, q, k, v, mask, 0.7)


@pytest.mark.parametrize('platform, limit, cuts', [
  ('cpu', 2**12, (3, 16, 16)), ('cpu', 2**13, (1, 16, 16)),
  ('gpu', 2**11, (3, 16, 16)), ('gpu', 2**12, (3, 24, 24)),
  ('gpu', 2**13, (3, 24, 40)), ('gpu', 2**15, (1, 24, 40))])
def test_groups_of_examples_equal_float64(platform, limit, cuts, monkeypatch):
  """Tiles take at most `limit` bytes, but have at least 16 x 16 numbers."""
  monkeypatch.setattr(chunked, 'BLOCK', 16)
  for name in ('CACHED', 'LARGE'):
    monkeypatch.setattr(chunked, name, limit)
  q, k, v = inputs(19, 37, value_width=5)
  with kernels.target(platform):
    assert chunked._cuts(q.shape, 37, False) == cuts
  mask = up_to(37, 37, 19, 0)
  attend = in_blocks(16, platform, limit)
  check(functools.partial(attend, mask=mask, scale=0.7), q, k, v, mask, 0.7)


def test_a_mesh_that_splits_the_batch_has_one_group():
  shape = (32, 2000, 2, 32)
  with kernels.target('gpu'):
    assert chunked._cuts(shape, 2000, False) == (4, 2000, 2000)
    with jax.sharding.use_abstract_mesh(
      jax.sharding.AbstractMesh((2,), ('data',))):
      assert chunked._cuts(shape, 2000, False) == (1, 504, 2000)


def test_chunked_takes_any_mask_and_large_logits():
  q, k, v = inputs(40, 70)
  q *= 30  # logits of several hundred: exp overflows without the maximum
  mask = np.random.default_rng(2).random((3, 70)) < 0.5
  mask[0, :16] = False  # every key of the first block is masked
  attend = functools.partial(in_blocks(16), mask=mask, scale=1.0)
  check(attend, q, k, v, mask, 1.0)


@each
@pytest.mark.parametrize('masked', (False, True))
def test_keys_that_are_not_there_take_no_part_below_any_logit(kernel, masked):
  """Masked keys and tile padding get weight 0 even if real logits are -4e32.
  """
  q, k, v = inputs(9, 9)
  q, k = np.full_like(q, 1e16), np.full_like(k, -1e16)  # logits of -4e32
  mask = up_to(9, 9, 4, 1) if masked else np.ones((3, 9), bool)
  v = np.where(mask[:, :, None, None], v, 1000).astype(np.float32)
  attend = public(kernel, mask=jnp.asarray(mask) if masked else None, scale=0.5)
  do = np.ones_like(v)
  out, *_, dv = with_gradients(attend)(do, q, k, v)
  want, *_, dwant = reference.softmax(q, k, v, mask, do)
  assert relative_rms(out, want) < 1e-6
  assert relative_rms(dv, dwant) < 1e-6


@FULL
@each
def test_second_gradients_of_a_sequence_without_keys_are_zero(kernel):
  q, k, v = inputs(5, 9)
  attend = public(kernel, mask=jnp.zeros((3, 9), bool))
  first = jax.grad(lambda q: (attend(q, k, v) ** 2).sum())
  second = jax.grad(lambda q: (first(q) * q).sum())(q)
  np.testing.assert_array_equal(second, 0)


@each
def test_without_a_mask_all_keys_take_part(kernel):
  q, k, v = inputs(20, 30)
  check(public(kernel), q, k, v, np.ones((3, 30), bool), 8**-0.5)


@pytest.mark.parametrize('groups', (1, 2))
@each
def test_heads_in_a_row_share_a_head_of_keys(kernel, groups):
  """Grouped heads equal attention with repeated keys and values."""
  rng = np.random.default_rng(0)
  q, k, v, do = (
    rng.normal(size=(3, *shape)).astype(np.float32)
    for shape in ((17, 6, 8), (40, groups, 8), (40, groups, 5), (17, 6, 5)))
  mask = up_to(40, 40, 11, 0)
  got = with_gradients(public(kernel, mask=jnp.asarray(mask)))(do, q, k, v)
  repeated = (np.repeat(x, 6 // groups, axis=2) for x in (k, v))
  out, dq, *dkv = reference.softmax(q, *repeated, mask, do)
  want = [out, dq] + [
    x.reshape(3, 40, groups, -1, x.shape[-1]).sum(3) for x in dkv]
  for x, y in zip(got, want, strict=True):
    assert x.shape == y.shape and relative_rms(x, y) < 1e-5


def test_shared_keys_and_values_are_not_copied():
  """Temporary memory is smaller than copies of keys and values for 16 heads."""
  q = jax.ShapeDtypeStruct((1, 64, 16, 32), jnp.float32)
  k = jax.ShapeDtypeStruct((1, 8192, 1, 32), jnp.float32)
  compiled = jax.jit(public('chunked')).lower(q, k, k).compile()
  copies = 2 * 16 * 8192 * 32 * 4
  assert compiled.memory_analysis().temp_size_in_bytes < copies / 2


@each
def test_a_sequence_without_keys_gives_exactly_zero(kernel):
  q, k, v = inputs(20, 30)
  attend = public(kernel, mask=jnp.asarray(up_to(30, 30, 1, 0)))
  for x in with_gradients(attend)(np.ones_like(q), q, k, v):
    np.testing.assert_array_equal(x[2], 0)
    assert np.any(x[0])


@each
def test_bfloat16(kernel):
  q, k, v = (x.astype(jnp.bfloat16) for x in inputs(100, 100))
  mask = up_to(100, 100, 37, 0)
  attend = public(kernel, mask=jnp.asarray(mask))
  check(attend, q, k, v, mask, 8**-0.5, 6e-3)
  out = jax.jit(attend)(q, k, v)
  want, *_ = reference.softmax(q, k, v, mask, out)
  assert relative_rms(out, want) < 4e-3


# Biases by distance.


def _biased(length, keys, dtype=np.float32):
  """Returns q, k, v, bias, mask, do; the last example has only masked keys."""
  q, k, v = (x.astype(dtype) for x in inputs(length, keys, value_width=5))
  rng = np.random.default_rng(4)
  do = rng.normal(size=(3, length, 2, 5)).astype(dtype)
  bias = 2 * rng.normal(size=(2, length + keys - 1)).astype(np.float32)
  return q, k, v, bias, up_to(keys, keys, (keys + 1) // 2, 0), do


def _compared(attend, q, k, v, bias, mask, do, scale=0.7):
  """Returns (name, array, float64 array) for the output and each gradient."""
  got = with_gradients(lambda q, k, v, bias: attend(
    q, k, v, jnp.asarray(mask), scale=scale, bias=bias))(do, q, k, v, bias)
  want = reference.softmax(q, k, v, mask, do, scale=scale, bias=bias)
  return list(zip(NAMES, got, want, strict=True))


@each
@pytest.mark.parametrize('length, keys', [(1, 9), (17, 40), (65, 33)])
def test_a_bias_equals_float64(kernel, length, keys):
  for name, x, y in _compared(KERNELS[kernel], *_biased(length, keys)):
    assert x.shape == y.shape and x.dtype == np.float32
    assert relative_rms(x, y) < 1e-5, name


@pytest.mark.parametrize('attend', [in_blocks(4), attend_dense])
@pytest.mark.parametrize('least', (-1e30, np.finfo(np.float32).min))
def test_no_bias_is_below_a_mask(attend, least):
  """Even if the bias gives all keys the least logit, masked keys get 0."""
  q, k, v, bias, mask, do = _biased(10, 10)
  bias = np.where(np.arange(-9, 10) > 0, least, bias).astype(np.float32)
  mask[:, 0] = False
  v = np.where(mask[:, :, None, None], v, 1000).astype(np.float32)
  compared = _compared(attend, q, k, v, bias, mask, do)
  for name, x, y in compared:
    assert relative_rms(x, y) < 1e-5, name
  np.testing.assert_array_equal(compared[3][1][~mask], 0)


def test_gradients_are_summed_in_float32():
  """With bfloat16 operands, many small blocks are as exact as one block."""
  found = []
  for block in (256, 4):
    compared = _compared(in_blocks(block), *_biased(256, 256, jnp.bfloat16),
                         scale=0.1)
    assert [x.dtype for _, x, _ in compared] == (
      4 * [jnp.bfloat16] + [jnp.float32])
    found.append([relative_rms(x, y) for _, x, y in compared])
  assert max(found[0]) < 1e-2
  for name, one, many in zip(NAMES, *found, strict=True):
    assert many < 1.5 * one, name


# Dropout of attention weights.


def factors(attend, q, k, mask, rate=RATE, bias=None, key=KEY):
  """Returns the dropout factor of each weight, [B, H, L, S].

  One-hot values make the output equal to the weights.
  """
  B, S, H, _ = k.shape
  v = jnp.broadcast_to(jnp.eye(S)[None, :, None], (B, S, H, S))
  dropped, whole = (np.asarray(jax.jit(functools.partial(
    attend, scale=0.7, **drop))(q, k, v, mask, bias=bias)).swapaxes(1, 2)
    for drop in ({'dropout_rate': rate, 'dropout_key': key}, {}))
  return np.where(whole > 0, dropped / np.where(whole > 0, whole, 1), 0)


@pytest.mark.every(2, 1)
@each
def test_how_many_are_kept_and_their_factor(kernel):
  q, k, _ = inputs(64, 64)
  found = factors(KERNELS[kernel], q, k, None, rate=0.25)
  kept = found > 0
  np.testing.assert_allclose(found[kept], 1 / 0.75, rtol=1e-5)
  # The tolerance is five standard deviations of a mean of 24,576 draws.
  assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / kept.size)


def test_tiles_heads_and_rows_are_drawn_apart():
  """Masks of tiles, heads and rows are independent with the `rbg` generator.

  JAX does not define `rbg` words by position, unlike those of threefry.
  """
  q, k, _ = inputs(64, 64)
  key = jax.random.key(0, impl='rbg')
  kept = factors(KERNELS['chunked'], q, k, None, rate=0.5, key=key) > 0
  tiles = kept.reshape(3, 2, 4, 16, 4, 16).swapaxes(3, 4).reshape(96, 256)
  alike = (tiles[:, None] == tiles).mean(-1)[~np.eye(96, dtype=bool)]
  # All 4,560 pairs agree in half of their bits, within 6 standard deviations.
  assert np.abs(alike - 0.5).max() < 6 * np.sqrt(0.25 / 256)


@pytest.mark.every(2, 1)
@each
def test_a_key_draws_the_same_and_another_one_does_not(kernel):
  q, k, v = inputs(40, 40)
  attend = public(kernel, dropout_rate=RATE)
  out = attend(q, k, v, dropout_key=KEY)
  np.testing.assert_array_equal(
    out, attend(q, k, v, dropout_key=jax.random.PRNGKey(3)))
  other = attend(q, k, v, dropout_key=jax.random.key(4))
  assert relative_rms(other, out) > 0.1


def test_memory_of_gradients_is_linear_in_the_length():
  x = jax.ShapeDtypeStruct((1, 4096, 1, 32), jnp.float32)

  def loss(q, k, v):
    return kernels.softmax_attention(
      q, k, v, dropout_rate=RATE, dropout_key=KEY).sum()

  compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(x, x, x).compile()
  one_byte_per_weight = 4096**2
  assert compiled.memory_analysis().temp_size_in_bytes < one_byte_per_weight


@pytest.mark.parametrize('biased', (False, True))
@pytest.mark.parametrize('kernel', (*KERNELS, *GROUPS))
def test_weights_are_dropped_by_their_words(kernel, biased):
  """Dropout, with a bias too, equals dropout of weights computed here."""
  q, k, v, bias, mask, do = _biased(40, 70)
  mask[-1, 0] = True
  mask = jnp.asarray(mask)

  def whole(q, k, v, bias):
    i, j = np.indices((40, 70))
    logits = 8**-0.5 * jnp.einsum('blhd,bshd->bhls', q, k)
    logits += bias[:, 39 + j - i] if biased else 0
    weights = jax.nn.softmax(logits, where=mask[:, None, None])
    kept = random_bits.kept(KEY, len(weights), weights.shape[1:], RATE)
    weights = jnp.where(kept, weights / (1 - RATE), 0)
    return jnp.einsum('bhls,bshd->blhd', weights, v)

  def ours(q, k, v, bias):
    attend = (KERNELS | GROUPS)[kernel]
    return attend(q, k, v, mask, scale=8**-0.5, dropout_rate=RATE,
                  bias=bias if biased else None, dropout_key=KEY)

  got, want = (with_gradients(f)(do, q, k, v, bias) for f in (ours, whole))
  for name, x, y in zip(NAMES, got, want, strict=True):
    assert relative_rms(x, y) < 1e-5, name
