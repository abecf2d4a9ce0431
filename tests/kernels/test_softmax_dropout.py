"""Tests dropout of attention weights: the choice, the rate, the gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import random_bits, reference
from lra.kernels.softmax import dense
from tests.helpers.errors import relative_rms
from tests.helpers.gradients import with_gradients
from tests.helpers.softmax import attend_dense, in_blocks, inputs, up_to

RATE = 0.3
KEY = jax.random.key(3)
KERNELS = {
  'dense': attend_dense,
  'chunked': in_blocks(16),
}


def factors(attend, q, k, mask, rate=RATE, bias=None, key=KEY):
  """Returns the dropout factor of each weight, [B, H, L, S].

  One-hot values make the output equal to the weights.
  """
  B, S, H, _ = k.shape
  v = jnp.broadcast_to(jnp.eye(S)[None, :, None], (B, S, H, S))
  dropped, whole = (
    np.asarray(
      jax.jit(functools.partial(attend, scale=0.7, **drop))(
        q, k, v, mask, bias=bias
      )
    ).swapaxes(1, 2)
    for drop in ({'dropout_rate': rate, 'dropout_key': key}, {})
  )
  return np.where(whole > 0, dropped / np.where(whole > 0, whole, 1), 0)


@pytest.mark.every(3)
@pytest.mark.parametrize('biased', (False, True))
@pytest.mark.parametrize('kernel', KERNELS)
def test_output_and_gradients_are_of_what_was_kept(kernel, biased):
  q, k, v = inputs(40, 70, value_width=5)
  mask = up_to(70, 70, 33, 0)
  bias = None
  if biased:
    bias = np.random.default_rng(5).normal(size=(2, 109)).astype(np.float32)
  attend = functools.partial(KERNELS[kernel], mask=mask, scale=0.7)
  factor = factors(KERNELS[kernel], q, k, mask, bias=bias)
  drop = {'dropout_rate': RATE, 'dropout_key': KEY}
  do = np.random.default_rng(1).normal(size=(3, 40, 2, 5)).astype(np.float32)
  args = (q, k, v, bias) if biased else (q, k, v)
  got = with_gradients(
    lambda q, k, v, bias=None: attend(q, k, v, bias=bias, **drop)
  )(do, *args)
  want = reference.softmax(
    q, k, v, mask, do, scale=0.7, bias=bias, factor=factor
  )
  names = ('out', 'dq', 'dk', 'dv', 'dbias')[: len(got)]
  for name, x, y in zip(names, got, want, strict=True):
    assert relative_rms(x, y) < 1e-5, name


@pytest.mark.every(2, 1)
@pytest.mark.parametrize('kernel', KERNELS)
def test_how_many_are_kept_and_their_factor(kernel):
  q, k, _ = inputs(64, 64)
  found = factors(KERNELS[kernel], q, k, None, rate=0.25)
  kept = found > 0
  np.testing.assert_allclose(found[kept], 1 / 0.75, rtol=1e-5)
  # The tolerance is five standard deviations of a mean of 24,576 draws.
  assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / kept.size)


def test_dense_scales_what_it_keeps():
  kept = dense.drop(jnp.ones((1, 2, 200, 200)), 0.25, jax.random.key(0))
  np.testing.assert_allclose(np.unique(kept), [0, 1 / 0.75], rtol=1e-6)
  # The tolerance is five standard deviations of a mean of 80,000 draws.
  assert abs(np.mean(kept) - 1) < 5 * np.sqrt(0.25 / 0.75 / kept.size)


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
@pytest.mark.parametrize('kernel', KERNELS)
def test_a_key_draws_the_same_and_another_one_does_not(kernel):
  q, k, v = inputs(40, 40)

  def attend(key):
    return kernels.softmax_attention(
      q, k, v, kernel=kernel, dropout_rate=RATE, dropout_key=key
    )

  out = attend(KEY)
  np.testing.assert_array_equal(out, attend(jax.random.PRNGKey(3)))
  assert relative_rms(attend(jax.random.key(4)), out) > 0.1


@pytest.mark.full
def test_bfloat16():
  q, k, v = (x.astype(jnp.bfloat16) for x in inputs(100, 100))
  mask = up_to(100, 100, 37, 0)
  attend = KERNELS['chunked']
  factor = factors(attend, *(x.astype(np.float32) for x in (q, k)), mask)
  do = np.random.default_rng(1).normal(size=(3, 100, 2, 8)).astype(v.dtype)
  got = with_gradients(
    lambda *qkv: attend(
      *qkv, mask, scale=0.7, dropout_rate=RATE, dropout_key=KEY
    )
  )(do, q, k, v)
  want = reference.softmax(q, k, v, mask, do, scale=0.7, factor=factor)
  for x, y in zip(got, want, strict=True):
    assert x.dtype == jnp.bfloat16
    assert relative_rms(x, y) < 6e-3


@pytest.mark.full
def test_large_gradients_of_float16_are_finite():
  """Loss scaling makes large gradients; dividing by 1 - rate would overflow."""
  q, k, v = (x.astype(jnp.float16) for x in inputs(40, 40))
  factor = factors(
    KERNELS['chunked'], *(x.astype(np.float32) for x in (q, k)), None, rate=0.5
  )
  v *= jnp.float16(0.01)
  do = np.full((3, 40, 2, 8), 4e4, np.float16)
  got = with_gradients(
    lambda *qkv: KERNELS['chunked'](
      *qkv, None, scale=0.7, dropout_rate=0.5, dropout_key=KEY
    )
  )(do, q, k, v)
  mask = np.ones((3, 40), bool)
  want = reference.softmax(q, k, v, mask, do, scale=0.7, factor=factor)
  fits = np.abs(want[3]) < 6e4  # the largest float16 is 65,504
  assert 0.1 < fits.mean() < 0.9
  for x, y in zip(got[:3], want[:3], strict=True):
    assert relative_rms(x, y) < 1e-2
  assert relative_rms(np.where(fits, got[3], 0), np.where(fits, want[3], 0)) < (
    1e-2
  )


@pytest.mark.every(2, 1)
@pytest.mark.parametrize('kernel', KERNELS)
def test_an_axis_of_one_device_changes_nothing(kernel):
  """Inside `shard_map`, a mesh axis of size 1 does not change dropout."""
  x = inputs(20, 20)
  x = [jnp.concatenate([y, y[:1]]) for y in x]
  mesh = jax.make_mesh(
    (2, 1), ('data', 'fsdp'), axis_types=2 * (jax.sharding.AxisType.Auto,)
  )

  def attend(q, k, v):
    return kernels.softmax_attention(
      q, k, v, kernel=kernel, dropout_rate=RATE, dropout_key=KEY
    )

  split = jax.sharding.PartitionSpec('data')
  inside = jax.shard_map(attend, mesh=mesh, in_specs=split, out_specs=split)
  assert relative_rms(jax.jit(inside)(*x), attend(*x)) < 1e-6


def test_memory_of_gradients_is_linear_in_the_length():
  x = jax.ShapeDtypeStruct((1, 4096, 1, 32), jnp.float32)

  def loss(q, k, v):
    return kernels.softmax_attention(
      q, k, v, dropout_rate=RATE, dropout_key=KEY
    ).sum()

  compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(x, x, x).compile()
  one_byte_per_weight = 4096**2
  assert compiled.memory_analysis().temp_size_in_bytes < one_byte_per_weight


@pytest.mark.parametrize('kernel', KERNELS)
def test_weights_are_dropped_by_their_words(kernel):
  q, k, v = inputs(20, 30)
  mask = jnp.asarray(up_to(30, 30, 7, 0))

  def whole(q, k, v):
    weights = dense.weights(q, k, mask, scale=8**-0.5)
    kept = random_bits.kept(KEY, len(weights), weights.shape[1:], RATE)
    weights = jnp.where(kept, weights / (1 - RATE), 0)
    return dense.apply_weights(weights, v)

  attend = functools.partial(
    KERNELS[kernel],
    mask=mask,
    scale=8**-0.5,
    dropout_rate=RATE,
    dropout_key=KEY,
  )
  out, want = jax.jit(attend)(q, k, v), jax.jit(whole)(q, k, v)
  assert relative_rms(out, want) < 1e-5
  if kernel == 'dense':
    np.testing.assert_array_equal(out, want)
