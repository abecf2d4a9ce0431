"""Softmax attention: every kernel against float64, and the choice of one."""

import functools

import jax
import jax.numpy as jnp
import mixer_oracle
import numpy as np
import pytest

from lra.errors import UserError
from lra.models import chunked, softmax

LENGTHS = [(1, 1), (16, 16), (17, 40), (65, 33)]


def _inputs(length, keys, width=8, value_width=8, seed=0):
  rng = np.random.default_rng(seed)
  return [rng.normal(size=(3, n, 2, d)).astype(np.float32)
          for n, d in ((length, width), (keys, width), (keys, value_width))]


def _check(attend, q, k, v, mask, scale):
  rng = np.random.default_rng(1)
  cotangent = rng.normal(size=(*q.shape[:3], v.shape[-1]))

  def pull(attention, cotangent, *args):
    y, vjp = jax.vjp(attention, *args)
    return y, vjp(cotangent)

  y, got = jax.jit(functools.partial(pull, attend))(
      cotangent.astype(np.float32), q, k, v)
  exact = [a.astype(np.float64) for a in (q, k, v)]
  want = mixer_oracle.attention(np, *exact, mask, scale)
  mixer_oracle.close(y, want, 1e-5, 'outputs')
  with jax.enable_x64(True):
    oracle = functools.partial(mixer_oracle.attention, jnp, mask=mask,
                               scale=scale)
    _, want = jax.jit(functools.partial(pull, oracle))(cotangent, *exact)
  for name, g, w in zip('qkv', got, want, strict=True):
    mixer_oracle.close(g, w, 1e-5, name)


@pytest.mark.parametrize('length,keys', LENGTHS)
def test_chunked_equals_float64_attention(length, keys):
  q, k, v = _inputs(length, keys, value_width=5)
  mask = np.arange(keys) < np.array([keys, (keys + 1) // 2, 0])[:, None]
  attend = functools.partial(
      chunked.chunked_attention, mask_BxS=mask, scale=0.7, block=16)
  _check(attend, q, k, v, mask, 0.7)


def test_chunked_takes_any_mask_and_large_logits():
  q, k, v = _inputs(40, 70)
  q *= 30  # logits of several hundred: exp overflows without the maximum
  mask = np.random.default_rng(2).random((3, 70)) < 0.5
  mask[0, :16] = False  # a whole first block without a key
  attend = functools.partial(
      chunked.chunked_attention, mask_BxS=mask, scale=1.0, block=16)
  _check(attend, q, k, v, mask, 1.0)


def test_dense_equals_float64_attention():
  q, k, v = _inputs(17, 40, value_width=5)
  mask = np.arange(40) < np.array([40, 7, 0])[:, None]
  _check(lambda q, k, v: softmax.attend(q, k, v, mask, kernel='dense'),
         q, k, v, mask, 8**-0.5)


def test_without_a_mask_all_keys_take_part():
  q, k, v = _inputs(20, 30)
  for kernel in ('dense', 'chunked'):
    _check(lambda q, k, v, kernel=kernel: softmax.attend(
        q, k, v, kernel=kernel), q, k, v, np.ones((3, 30), bool), 8**-0.5)


def test_block_sizes_cover_the_length_with_little_padding():
  for length in (1, 7, 511, 512, 513, 2001, 4001):
    size = chunked.block_size(length, 512)
    blocks = -(-length // size)
    assert size <= 512 and size % 8 == 0
    assert blocks == -(-length // 512)
    assert blocks * size - length < 8 * blocks


def test_bfloat16_stays_near_float64():
  q, k, v = (a.astype(jnp.bfloat16) for a in _inputs(100, 100))
  mask = np.arange(100) < np.array([100, 37, 0])[:, None]
  want = mixer_oracle.attention(
      np, *(np.asarray(a, np.float64) for a in (q, k, v)), mask, 8**-0.5)
  for kernel in ('dense', 'chunked'):
    got = jax.jit(lambda q, k, v, kernel=kernel: softmax.attend(
        q, k, v, mask, kernel=kernel))(q, k, v)
    assert got.dtype == jnp.bfloat16
    error = np.sqrt(np.mean((np.asarray(got, np.float64) - want)**2))
    assert error <= 4e-3 * np.sqrt(np.mean(want**2))


def test_auto_is_chunked_without_a_gpu_and_dense_under_dropout():
  choose = functools.partial(
      softmax.choose, head_width=64, dtype=jnp.bfloat16)
  assert choose('auto') in ('chunked', 'cudnn')
  assert choose('auto', attention_dropout=0.1) == 'dense'
  assert choose('chunked') == 'chunked'


@pytest.mark.parametrize('kernel,options,words', [
    ('flash', {}, 'choose auto'),
    ('chunked', {'attention_dropout': 0.1}, 'attention_dropout=0'),
    ('cudnn', {'attention_dropout': 0.1}, 'attention_dropout=0'),
    ('cudnn', {}, 'config.model.kernel=cudnn needs'),
])
def test_impossible_kernels_are_refused(kernel, options, words):
  with pytest.raises(UserError, match=words):
    # float32, so that cuDNN is refused on a GPU as well
    softmax.choose(kernel, head_width=64, dtype=jnp.float32, **options)


class _Device:

  def __init__(self, capability):
    self.compute_capability = capability


@pytest.mark.parametrize('capability,dtype,width,value_width,kernel', [
    ('9.0', jnp.bfloat16, 64, 64, 'cudnn'),
    ('9.0', jnp.bfloat16, 256, 256, 'cudnn'),
    ('8.0', jnp.float16, 128, 128, 'cudnn'),
    ('8.0', jnp.bfloat16, 256, 256, 'chunked'),
    ('7.5', jnp.bfloat16, 64, 64, 'chunked'),
    ('9.0', jnp.float32, 64, 64, 'chunked'),
    ('9.0', jnp.bfloat16, 36, 36, 'chunked'),
    ('9.0', jnp.bfloat16, 64, 32, 'chunked'),
])
def test_auto_takes_cudnn_where_it_applies(
    monkeypatch, capability, dtype, width, value_width, kernel):
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  monkeypatch.setattr(jax, 'local_devices', lambda: [_Device(capability)])
  assert softmax.choose('auto', dtype=dtype, head_width=width,
                        value_width=value_width) == kernel


def test_cudnn_is_given_the_lengths_of_the_sequences(monkeypatch):
  """The call as cuDNN gets it, computed by its XLA twin."""
  attention = jax.nn.dot_product_attention

  def xla(*args, implementation, **kwargs):
    assert implementation == 'cudnn'
    return attention(*args, implementation='xla', **kwargs)

  monkeypatch.setattr(jax.nn, 'dot_product_attention', xla)
  monkeypatch.setattr(softmax, 'choose', lambda *_, **__: 'cudnn')
  q, k, v = _inputs(40, 40)
  mask = np.arange(40) < np.array([40, 7, 0])[:, None]
  for m in (mask, np.ones((3, 40), bool)):
    _check(lambda q, k, v, m=m: softmax.attend(
        q, k, v, None if m.all() else m), q, k, v, m, 8**-0.5)
