"""Compares softmax attention with a bias per distance with float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from lra import kernels
from lra.kernels import random_bits, reference
from lra.kernels.softmax import distances
from tests.helpers.errors import relative_rms
from tests.helpers.gradients import with_gradients
from tests.helpers.softmax import in_blocks

X = jnp.ones((2, 8, 2, 32))
BIAS = jnp.zeros((2, 15))
NAMES = ('out', 'dq', 'dk', 'dv', 'dbias')


def _inputs(length, keys, dtype=np.float32):
  """Returns q, k, v, bias, mask, do; the last example has only masked keys."""
  rng = np.random.default_rng(0)
  q, k, v, do = (
    rng.normal(size=(3, n, 2, d)).astype(dtype)
    for n, d in ((length, 8), (keys, 8), (keys, 5), (length, 5))
  )
  bias = 2 * rng.normal(size=(2, length + keys - 1)).astype(np.float32)
  mask = np.arange(keys) < np.array([keys, (keys + 1) // 2, 0])[:, None]
  return q, k, v, bias, mask, do


def _dense(q, k, v, mask, *, scale, bias):
  return kernels.softmax_attention(
    q, k, v, mask=mask, scale=scale, bias=bias, kernel='dense'
  )


def _compared(attend, q, k, v, bias, mask, do):
  """Returns (name, array, float64 array) for the output and each gradient."""
  got = with_gradients(
    lambda q, k, v, bias: attend(
      q, k, v, jnp.asarray(mask), scale=0.7, bias=bias
    )
  )(do, q, k, v, bias)
  want = reference.softmax(q, k, v, mask, do, scale=0.7, bias=bias)
  return list(zip(NAMES, got, want, strict=True))


@pytest.mark.parametrize(
  'attend', [in_blocks(16), _dense]
)
@pytest.mark.parametrize('length, keys', [(1, 9), (17, 40), (65, 33)])
def test_equals_float64(attend, length, keys):
  q, k, v, bias, mask, do = _inputs(length, keys)
  for name, x, y in _compared(attend, q, k, v, bias, mask, do):
    assert x.shape == y.shape and x.dtype == np.float32
    assert relative_rms(x, y) < 1e-5, name


@pytest.mark.parametrize(
  'attend', [in_blocks(4), _dense]
)
@pytest.mark.parametrize('least', (-1e30, np.finfo(np.float32).min))
def test_no_bias_is_below_a_mask(attend, least):
  """Even if the bias gives all keys the least logit, masked keys get 0."""
  q, k, v, bias, mask, do = _inputs(10, 10)
  bias = np.where(np.arange(-9, 10) > 0, least, bias).astype(np.float32)
  mask[:, 0] = False
  v = np.where(mask[:, :, None, None], v, 1000).astype(np.float32)
  compared = _compared(attend, q, k, v, bias, mask, do)
  for name, x, y in compared:
    assert relative_rms(x, y) < 1e-5, name
  np.testing.assert_array_equal(compared[3][1][~mask], 0)


def test_weights_are_dropped_by_their_words():
  """Dropout with a bias equals dropout of explicitly computed weights."""
  q, k, v, bias, mask, do = _inputs(12, 16)
  mask[-1, 0] = True
  key = jax.random.key(3)

  def whole(q, k, v, bias):
    i, j = np.indices((12, 16))
    logits = 8**-0.5 * jnp.einsum('blhd,bshd->bhls', q, k)
    weights = jax.nn.softmax(
      logits + bias[:, 11 + j - i], where=mask[:, None, None]
    )
    kept = random_bits.kept(key, len(weights), weights.shape[1:], 0.3)
    weights = jnp.where(kept, weights / (1 - 0.3), 0)
    return jnp.einsum('bhls,bshd->blhd', weights, v)

  ours = functools.partial(
    kernels.softmax_attention, mask=mask, dropout_rate=0.3, dropout_key=key
  )
  got, want = (
    with_gradients(lambda q, k, v, bias, f=f: f(q, k, v, bias=bias))(
      do, q, k, v, bias
    )
    for f in (ours, whole)
  )
  for name, x, y in zip(NAMES, got, want, strict=True):
    assert relative_rms(x, y) < 1e-5, name


def test_the_bias_of_the_reference_is_of_key_minus_query():
  """Checks the reference's bias pair by pair, its gradient by differences."""
  *arrays, mask, do = _inputs(4, 3)
  q, k, v, bias = (x.astype(np.float64) for x in arrays)
  out, *_, dbias = reference.softmax(q, k, v, mask, do, bias=bias)
  i = 2
  logits = np.array(
    [8**-0.5 * k[0, j, 1] @ q[0, i, 1] + bias[1, 3 + j - i] for j in range(3)]
  )
  weights = np.exp(logits) / np.exp(logits).sum()
  np.testing.assert_allclose(out[0, i, 1], weights @ v[0, :, 1], rtol=1e-9)
  for entry in np.ndindex(bias.shape):
    low, high = (
      (reference.softmax(q, k, v, mask, do, bias=moved)[0] * do).sum()
      for moved in (_moved(bias, entry, -1e-5), _moved(bias, entry, 1e-5))
    )
    np.testing.assert_allclose(
      dbias[entry], (high - low) / 2e-5, rtol=1e-5, atol=1e-8
    )


def _moved(x, entry, by):
  x = x.copy()
  x[entry] += by
  return x


def test_rows_are_moved_on_by_one_and_summed_back():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(2, 4 + 7 - 1)).astype(np.float32)
  spread = np.asarray(distances.along_diagonals(x, 4))
  summed = np.asarray(distances.sum_diagonals(jnp.asarray(spread)))
  want = np.zeros_like(x)
  for i, j in np.ndindex(4, 7):
    np.testing.assert_array_equal(spread[:, i, j], x[:, 3 - i + j])
    want[:, 3 - i + j] += spread[:, i, j]
  np.testing.assert_allclose(summed, want, rtol=1e-6)


def test_gradients_are_summed_in_float32():
  """With bfloat16 operands, many small blocks are as exact as one block."""
  q, k, v, bias, mask, do = _inputs(256, 256, jnp.bfloat16)
  want = reference.softmax(q, k, v, mask, do, scale=0.1, bias=bias)
  errors = []
  for block in (256, 4):
    got = with_gradients(
      lambda q, k, v, bias, block=block: in_blocks(block)(
        q, k, v, jnp.asarray(mask), scale=0.1, bias=bias
      )
    )(do, q, k, v, bias)
    assert [x.dtype for x in got] == 4 * [jnp.bfloat16] + [jnp.float32]
    errors.append([relative_rms(x, y) for x, y in zip(got, want, strict=True)])
  assert max(errors[0]) < 1e-2
  for name, one, many in zip(NAMES, *errors, strict=True):
    assert many < 1.5 * one, name


def test_sharded_over_the_batch_it_is_whole_on_every_device():
  mesh = jax.make_mesh((3,), ('data',), axis_types=(AxisType.Auto,))
  q, k, v, bias, mask, do = _inputs(20, 24)
  got, want = (
    with_gradients(
      lambda q, k, v, bias, f=f: f(q, k, v, mask=jnp.asarray(mask), bias=bias)
    )(do, q, k, v, bias)
    for f in (
      kernels.sharded(kernels.softmax_attention, mesh),
      kernels.softmax_attention,
    )
  )
  for name, x, y in zip(NAMES, got, want, strict=True):
    assert relative_rms(x, y) < 1e-6, name


@pytest.mark.parametrize('platform', ['cpu', 'gpu', 'tpu'])
def test_auto_is_chunked_on_every_device(platform):
  def resolve(kernel):
    return kernels.resolve('softmax', kernel, X.shape, jnp.bfloat16, bias=True)

  with kernels.target(platform):
    assert resolve('auto') == 'chunked'
    assert resolve('dense') == 'dense'
    for name in {'gpu': ['cudnn'], 'tpu': ['splash']}.get(platform, []):
      with pytest.raises(NotImplementedError, match='no bias of distances'):
        resolve(name)


@pytest.mark.parametrize(
  'bias, k, words',
  [
    (BIAS[:, 1:], X, r'float32 \[H, L \+ S - 1\] = \(2, 15\), got .*14'),
    (BIAS[:1], X, r'got float32 \(1, 15\)'),
    (BIAS.astype('bfloat16'), X, 'got bfloat16'),
    (BIAS, X[:, :, :1], 'as many heads of k as of q, 2, got 1'),
  ],
)
def test_arguments(bias, k, words):
  with pytest.raises(ValueError, match=f'^bias .*{words}'):
    kernels.softmax_attention(X, k, k, bias=bias)
