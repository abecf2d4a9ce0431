"""Softmax attention: every kernel against float64, and the choice of one."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import kernels
from kernels import dispatch
from kernels.softmax import chunked, dense, reference
from kernels.tools.rms import relative_rms

LENGTHS = [
  (1, 9),
  (17, 40),
  pytest.param(16, 16, marks=pytest.mark.full),
  pytest.param(65, 33, marks=pytest.mark.full),
]
X = jnp.ones((2, 8, 2, 32))


def _inputs(length, keys, width=8, value_width=8, seed=0):
  rng = np.random.default_rng(seed)
  return [
    rng.normal(size=(3, n, 2, d)).astype(np.float32)
    for n, d in ((length, width), (keys, width), (keys, value_width))
  ]


def _mask(keys, *lengths):
  return np.arange(keys) < np.array(lengths)[:, None]


def _with_gradients(attend):
  @jax.jit
  def both(do, *args):
    out, pull = jax.vjp(attend, *args)
    return out, *pull(do)

  return both


def _check(attend, q, k, v, mask, scale, bound=1e-5):
  rng = np.random.default_rng(1)
  do = rng.normal(size=(*q.shape[:3], v.shape[-1])).astype(v.dtype)
  got = _with_gradients(attend)(do, q, k, v)
  want = reference.attention(q, k, v, mask, do, scale=scale)
  for name, x, y in zip(('out', 'dq', 'dk', 'dv'), got, want, strict=True):
    assert x.dtype == q.dtype
    assert relative_rms(x, y) < bound, name


@pytest.mark.parametrize('length, keys', LENGTHS)
def test_chunked(length, keys):
  q, k, v = _inputs(length, keys, value_width=5)
  mask = _mask(keys, keys, (keys + 1) // 2, 0)
  attend = functools.partial(chunked.attend, mask=mask, scale=0.7, block=16)
  _check(attend, q, k, v, mask, 0.7)


@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_one_key_gives_its_value_and_no_gradient_of_the_weights(kernel):
  q, k, v = _inputs(3, 1)
  attend = functools.partial(kernels.softmax_attention, kernel=kernel)
  out, dq, dk, dv = _with_gradients(attend)(np.ones_like(q), q, k, v)
  assert relative_rms(out, np.broadcast_to(v, out.shape)) < 1e-6
  assert max(np.abs(dq).max(), np.abs(dk).max()) < 1e-5
  assert relative_rms(dv, np.full(dv.shape, 3)) < 1e-6


def test_chunked_takes_any_mask_and_large_logits():
  q, k, v = _inputs(40, 70)
  q *= 30  # logits of several hundred: exp overflows without the maximum
  mask = np.random.default_rng(2).random((3, 70)) < 0.5
  mask[0, :16] = False  # a whole first block without a key
  attend = functools.partial(chunked.attend, mask=mask, scale=1.0, block=16)
  _check(attend, q, k, v, mask, 1.0)


def test_dense():
  q, k, v = _inputs(17, 40, value_width=5)
  mask = _mask(40, 40, 7, 0)
  attend = functools.partial(
    kernels.softmax_attention, mask=jnp.asarray(mask), kernel='dense'
  )
  _check(attend, q, k, v, mask, 8**-0.5)


@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_without_a_mask_all_keys_take_part(kernel):
  q, k, v = _inputs(20, 30)
  attend = functools.partial(kernels.softmax_attention, kernel=kernel)
  _check(attend, q, k, v, np.ones((3, 30), bool), 8**-0.5)


@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_a_sequence_without_keys_gives_exactly_zero(kernel):
  q, k, v = _inputs(20, 30)
  mask = jnp.asarray(_mask(30, 30, 1, 0))
  attend = functools.partial(
    kernels.softmax_attention, mask=mask, kernel=kernel
  )
  for x in _with_gradients(attend)(np.ones_like(q), q, k, v):
    np.testing.assert_array_equal(x[2], 0)
    assert np.any(x[0])


@pytest.mark.parametrize('kernel', ('dense', 'chunked'))
def test_bfloat16(kernel):
  q, k, v = (x.astype(jnp.bfloat16) for x in _inputs(100, 100))
  mask = _mask(100, 100, 37, 0)
  attend = functools.partial(
    kernels.softmax_attention, mask=jnp.asarray(mask), kernel=kernel
  )
  _check(attend, q, k, v, mask, 8**-0.5, 6e-3)
  out = jax.jit(attend)(q, k, v)
  want, *_ = reference.attention(q, k, v, mask, out)
  assert relative_rms(out, want) < 4e-3


def test_block_sizes_cover_the_length_with_little_padding():
  for length in (1, 7, 511, 512, 513, 2001, 4001):
    size = chunked.block_size(length, 512)
    blocks = -(-length // size)
    assert size <= 512 and size % 8 == 0
    assert blocks == -(-length // 512)
    assert blocks * size - length < 8 * blocks


def test_dropout_is_that_of_flax():
  q, k, v = _inputs(20, 30)
  mask, key = jnp.asarray(_mask(30, 30, 7, 0)), jax.random.key(3)

  def flax(q, k, v):
    weights = dense.weights(q, k, mask, scale=8**-0.5)
    weights = nn.Dropout(0.3, deterministic=False).apply({}, weights, rng=key)
    return dense.apply_weights(weights, v)

  attend = functools.partial(
    kernels.softmax_attention, mask=mask, dropout_rate=0.3, dropout_key=key
  )
  out = jax.jit(attend)(q, k, v)
  np.testing.assert_array_equal(out, jax.jit(flax)(q, k, v))
  want, *_ = reference.attention(q, k, v, mask, out)
  assert relative_rms(out, want) > 0.1


def test_dropout_scales_what_it_keeps():
  kept = dense.drop(jnp.ones((1, 2, 200, 200)), 0.25, jax.random.key(0))
  np.testing.assert_allclose(np.unique(kept), [0, 1 / 0.75], rtol=1e-6)
  # Five standard deviations of the mean of 80,000 draws.
  assert abs(np.mean(kept) - 1) < 5 * np.sqrt(0.25 / 0.75 / kept.size)


def test_sharded_over_the_batch():
  mesh = jax.make_mesh((4,), ('data',), axis_types=(AxisType.Auto,))
  rng = np.random.default_rng(0)
  q, k, v = rng.normal(size=(3, 4, 20, 2, 8)).astype(np.float32)
  mask = jnp.asarray(_mask(20, 20, 7, 3, 0))
  split = kernels.sharded(kernels.softmax_attention, mesh)
  drop = {'dropout_rate': 0.5, 'dropout_key': jax.random.key(0)}
  for options in ({}, drop):
    got, want = (
      jax.jit(functools.partial(attend, mask=mask, **options))(q, k, v)
      for attend in (split, kernels.softmax_attention)
    )
    assert relative_rms(got, want) < 1e-6


def _resolve(kernel, dtype=jnp.bfloat16, width=64, **needs):
  return kernels.resolve('softmax', kernel, (2, 8, 2, width), dtype, **needs)


def test_auto_is_chunked_without_a_gpu_and_dense_under_dropout():
  assert _resolve('auto') in ('chunked', 'cudnn')
  assert _resolve(None, jnp.float32) == 'chunked'
  assert _resolve('auto', dropout_rate=0.1) == 'dense'
  assert _resolve('chunked') == 'chunked'
  assert _resolve('dense', value_width=3) == 'dense'
  with kernels.target('gpu'):  # nothing is known of a GPU that is not here
    assert _resolve('auto') == 'chunked'


@pytest.mark.parametrize(
  'kind, kernel, needs, words',
  [
    (ValueError, 'flash', {}, "^kernel must be 'auto' or one of"),
    (NotImplementedError, 'chunked', {'dropout_rate': 0.1}, 'rate of 0'),
    (NotImplementedError, 'cudnn', {'dropout_rate': 0.1}, 'rate of 0'),
    (NotImplementedError, 'cudnn', {}, "^softmax: kernel='cudnn' needs"),
  ],
)
def test_impossible_kernels_are_refused(kind, kernel, needs, words):
  with pytest.raises(kind, match=words):
    # float32, so that cuDNN is refused on a GPU as well
    _resolve(kernel, jnp.float32, **needs)
  options = {'dropout_key': jax.random.key(0), **needs} if needs else {}
  with pytest.raises(kind, match=words):
    kernels.softmax_attention(X, X, X, kernel=kernel, **options)


@pytest.mark.parametrize(
  'word, args, options',
  [
    ('^q must be a non-empty array', (X[0], X, X), {}),
    ('^k must be a non-empty array', (X, X[:, :0], X[:, :0]), {}),
    ('^q must be float32 or .*, got int32', (X.astype(jnp.int32),) * 3, {}),
    ('^k must have the dtype of q', (X, X.astype('bfloat16'), X), {}),
    ('^k must be .* with the B, H, Dh of q', (X, X[..., :9], X), {}),
    ('^k must be .* with the B, H, Dh of q', (X, X[:, :, :1], X), {}),
    ('^v must be .* with the B, S, H of k', (X, X, X[:, :7]), {}),
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


class _Device:
  def __init__(self, capability):
    self.compute_capability = capability


@pytest.mark.parametrize(
  'capability, dtype, width, value_width, kernel',
  [
    ('9.0', jnp.bfloat16, 64, 64, 'cudnn'),
    ('9.0', jnp.bfloat16, 256, 256, 'cudnn'),
    ('8.0', jnp.float16, 128, 128, 'cudnn'),
    ('8.0', jnp.bfloat16, 256, 256, 'chunked'),
    ('7.5', jnp.bfloat16, 64, 64, 'chunked'),
    ('9.0', jnp.float32, 64, 64, 'chunked'),
    ('9.0', jnp.bfloat16, 36, 36, 'chunked'),
    ('9.0', jnp.bfloat16, 64, 32, 'chunked'),
  ],
)
def test_auto_takes_cudnn_where_it_applies(
  monkeypatch, capability, dtype, width, value_width, kernel
):
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  monkeypatch.setattr(jax, 'local_devices', lambda: [_Device(capability)])
  assert _resolve('auto', dtype, width, value_width=value_width) == kernel


def test_cudnn_is_given_the_lengths_of_the_sequences(monkeypatch):
  """The call as cuDNN gets it, computed by its XLA twin."""
  attention = jax.nn.dot_product_attention

  def xla(*args, implementation, **kwargs):
    assert implementation == 'cudnn'
    return attention(*args, implementation='xla', **kwargs)

  monkeypatch.setattr(jax.nn, 'dot_product_attention', xla)
  monkeypatch.setattr(dispatch, 'resolve', lambda *_, **__: 'cudnn')
  q, k, v = _inputs(40, 40)
  for mask in (_mask(40, 40, 7, 0), np.ones((3, 40), bool)):
    given = None if mask.all() else jnp.asarray(mask)
    attend = functools.partial(kernels.softmax_attention, mask=given)
    _check(attend, q, k, v, mask, 8**-0.5)
