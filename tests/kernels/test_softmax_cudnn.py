"""Tests when `auto` chooses cuDNN's attention, and the arguments it gets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import dispatch
from lra.kernels.softmax import cudnn
from tests.helpers import reference
from tests.helpers.errors import relative_rms
from tests.helpers.gradients import with_gradients
from tests.helpers.softmax import check, inputs, resolve, up_to


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
    ('gfx942', jnp.bfloat16, 64, 64, 'chunked'),  # AMD
  ],
)
def test_auto_takes_cudnn_where_it_applies(
  monkeypatch, capability, dtype, width, value_width, kernel
):
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  monkeypatch.setattr(jax, 'local_devices', lambda: [_Device(capability)])
  monkeypatch.setattr(cudnn, '_not_loaded', lambda: '')
  assert resolve('auto', dtype, width, value_width=value_width) == kernel


def test_cudnn_for_a_gpu_that_is_not_here_needs_the_library(monkeypatch):
  with kernels.target('gpu'):
    monkeypatch.setattr(cudnn, '_not_loaded', lambda: '')
    assert resolve('auto') == 'cudnn'
    assert resolve('auto', width=256) == 'chunked'
    monkeypatch.setattr(cudnn, '_not_loaded', lambda: 'the library')
    assert resolve('auto') == 'chunked'
    reasons = kernels.explain('softmax', (2, 8, 2, 64), jnp.bfloat16)
  assert 'the library' in reasons['cudnn']
  with kernels.target('gpu', interpret=True):
    with pytest.raises(NotImplementedError, match='interpreter'):
      resolve('cudnn')


def test_a_cudnn_that_jax_does_not_find_is_no_error(monkeypatch):
  def missing(*_, **__):
    raise RuntimeError('cuDNN is not detected.')

  cudnn._not_loaded.cache_clear()
  monkeypatch.setattr(jax.nn, 'dot_product_attention', missing)
  assert 'not detected' in cudnn._not_loaded()
  cudnn._not_loaded.cache_clear()


@pytest.fixture
def twin(monkeypatch):
  """Replaces cuDNN by JAX's XLA attention with cuDNN's restrictions.

  Lengths must be even. Gradients past the end of a sequence are arbitrary.
  """
  attention = jax.nn.dot_product_attention

  def xla(q, k, v, *, key_value_seq_lengths, implementation, **kwargs):
    assert implementation == 'cudnn'
    assert q.shape[1] % 2 == k.shape[1] % 2 == 0
    lengths = {'key_value_seq_lengths': key_value_seq_lengths}
    out = attention(q, k, v, implementation='xla', **kwargs, **lengths)
    if key_value_seq_lengths is None:
      return out
    behind = ~_lengths_mask(k.shape[1], key_value_seq_lengths)
    junk = sum(x - jax.lax.stop_gradient(x) for x in (k, v))
    return out + jnp.where(behind[..., None, None], junk, 0).sum()

  monkeypatch.setattr(jax.nn, 'dot_product_attention', xla)
  monkeypatch.setattr(dispatch, 'resolve', lambda *_, **__: 'cudnn')


def _lengths_mask(keys, lengths):
  return jnp.arange(keys) < lengths[:, None]


@pytest.mark.every(4)
@pytest.mark.parametrize('length, keys', [(40, 40), (40, 31), (33, 40)])
@pytest.mark.parametrize('kind', ['none', 'trailing', 'any'])
def test_cudnn_takes_any_mask_and_any_length(twin, kind, length, keys):
  q, k, v = inputs(length, keys)
  mask = np.ones((3, keys), bool)
  if kind == 'trailing':
    mask = up_to(keys, keys, 7, 0)
  elif kind == 'any':
    mask = np.random.default_rng(5).random((3, keys)) < 0.5
    mask[0] = up_to(keys, 9)[0, ::-1]  # all padding comes first
  given = None if kind == 'none' else jnp.asarray(mask)
  attend = functools.partial(kernels.softmax_attention, mask=given, scale=0.7)
  check(attend, q, k, v, mask, 0.7)


def test_cudnn_under_vmap_and_remat(twin):
  q, k, v = (jnp.stack([x, 2 * x]) for x in inputs(9, 9))
  mask = np.random.default_rng(6).random((2, 3, 9)) < 0.5
  attend = with_gradients(
    lambda q, k, v, mask: jax.checkpoint(kernels.softmax_attention)(
      q, k, v, mask=mask
    )
  )
  do = np.ones_like(q)
  *got, _ = jax.vmap(attend)(do, q, k, v, mask)
  for i in range(2):
    want = reference.softmax(q[i], k[i], v[i], mask[i], do[i])
    for x, y in zip(got, want, strict=True):
      assert relative_rms(x[i], y) < 1e-5
