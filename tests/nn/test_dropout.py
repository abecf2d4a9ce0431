"""Tests the rate, the scaling and the independence of dropout."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels, models
from lra.nn import direction, dropout
from tests.helpers import gradients, small

SHAPE = (64, 128, 63)  # an odd width: half a word is left over


def _kept(seed, rate=0.1, shape=SHAPE):
  x = dropout.drop(jax.random.key(seed), jnp.ones(shape), rate)
  return np.asarray(x) != 0


@pytest.mark.parametrize('rate', (0.01, 0.1, 0.5, 0.9))
def test_rate_and_scale(rate):
  """The dropped share is right (5 standard errors); kept values are scaled."""
  x = np.asarray(dropout.drop(jax.random.key(1), jnp.ones(SHAPE), rate))
  share = round(rate * 65536) / 65536
  error = (rate * (1 - rate) / x.size) ** 0.5
  assert abs((x == 0).mean() - share) < 5 * error
  np.testing.assert_allclose(np.unique(x[x != 0]), [1 / (1 - share)])


@pytest.mark.parametrize('seed', (0, 1))
@pytest.mark.parametrize('axis, lag', [
    (2, 1), (2, 2), (2, 32), (1, 1), (0, 1), (0, 7)])
def test_elements_are_uncorrelated(axis, lag, seed):
  """Half-words, neighbours, rows and examples are uncorrelated."""
  x = _kept(seed).astype(float)
  x = np.moveaxis((x - 0.9) / 0.3, axis, 0)
  products = x[lag:] * x[:-lag]
  assert abs(products.mean()) < 5 / products.size**0.5


@pytest.mark.every(3)
@pytest.mark.parametrize('platform', ('cpu', 'gpu'))
@pytest.mark.parametrize('width', (8, 63, 3))
def test_an_element_is_decided_by_its_half_of_a_word(width, platform):
  """Elements are kept by 16-bit halves of the words of `jax.random`."""
  key, rate = jax.random.key(5), 0.3
  with kernels.target(platform):
    y = dropout.drop(key, jnp.ones((3, 17, width)), rate)
  kept = np.asarray(y) != 0
  for row, row_key in zip(kept, kernels.row_keys(key, 3), strict=True):
    words = jax.random.bits(row_key, (17, -(-width // 2)), jnp.uint32)
    levels = np.asarray(words).astype('<u4').view('<u2')[:, :width]
    np.testing.assert_array_equal(row, levels >= round(rate * 65536))


def test_keys_draw_masks_of_their_own():
  a, b = _kept(0).astype(float), _kept(1).astype(float)
  correlation = np.mean((a - 0.9) * (b - 0.9)) / 0.09
  assert abs(correlation) < 5 / a.size**0.5
  np.testing.assert_array_equal(_kept(1), _kept(1))


def test_off_without_a_rate_and_in_evaluation():
  x = jnp.ones((2, 3))
  for rate, deterministic in ((0.0, False), (0.5, True)):
    layer = dropout.Dropout(rate)
    np.testing.assert_array_equal(
        layer.apply({}, x, deterministic=deterministic), x)


@pytest.mark.parametrize('platform', ('cpu', 'gpu'))
def test_gradient_and_dtype(platform):
  """For inputs of 1 the gradient equals the output; dtypes are kept."""
  key, x = jax.random.key(0), jnp.ones((4, 10), jnp.bfloat16)
  with kernels.target(platform):
    y, gradient = gradients.with_gradients(
        lambda x: dropout.drop(key, x, 0.5))(jnp.ones_like(x), x)
  assert y.dtype == jnp.bfloat16
  np.testing.assert_array_equal(gradient, y)


@pytest.mark.parametrize('platform', ('cpu', 'gpu'))
def test_tied_tokens_drop_what_one_token_would(platform):
  """All tokens share one mask, in the output and in the gradient."""
  key, x = jax.random.key(5), jnp.ones((3, 17, 63))
  with kernels.target(platform):
    y, dx = gradients.with_gradients(
        lambda x: dropout.drop(key, x, 0.3, tied=True))(2 * x, x)
    alone = jax.jit(lambda x: dropout.drop(key, x, 0.3))(x[:, :1])
  np.testing.assert_array_equal(y, np.broadcast_to(alone, x.shape))
  np.testing.assert_array_equal(dx, 2 * np.asarray(y))


@pytest.mark.every(13)
@pytest.mark.parametrize('tied', [True, False])
@pytest.mark.parametrize('model', ['transformer', *(
    name for name in models.names() if issubclass(
        models.mixer(name), direction.DirectedMixer))])
def test_all_dropout_of_a_model_is_tied_or_none(model, tied):
  c = small.config(model, 'listops')
  c.encoder.update(dropout=0.5, pooling='mean', tie_dropout=tied)
  p, seen = small.make(c), []

  def intercept(apply, args, kwargs, context):
    if isinstance(context.module, dropout.Dropout):
      seen.append(context.module.tied)
    return apply(*args, **kwargs)

  tokens = small.batch(p.objective.task, 4, 24)['tokens']
  with nn.intercept_methods(intercept):
    jax.eval_shape(lambda params: p.model.apply(
        {'params': params}, tokens, train=True,
        rngs={'dropout': jax.random.key(0)}), p.state_shape.params)
  assert len(seen) >= 4 and set(seen) == {tied}
