"""The shared encoder: pooling, padding, parameters, heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from lra.nn import encoder, heads


def test_pooling_reads_true_tokens_only():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(3, 6, 4)).astype(np.float32)
  lengths = np.array([6, 2, 0])
  mask = np.arange(6) < lengths[:, None]
  got = {p: np.asarray(encoder.pool(jnp.asarray(x), jnp.asarray(mask), p))
         for p in encoder.POOLING}
  for b, n in enumerate(lengths):
    mean = x[b, :n].mean(axis=0) if n else np.zeros(4)
    np.testing.assert_allclose(got['mean'][b], mean, rtol=1e-6)
    np.testing.assert_array_equal(got['last'][b], x[b, max(n - 1, 0)])
    np.testing.assert_array_equal(got['cls'][b], x[b, 0])
    np.testing.assert_array_equal(got['first'][b], x[b, 0])


def test_pair_features():
  x = jnp.array([[[1.0, 2.0], [3.0, -1.0]]])
  np.testing.assert_array_equal(
      heads.join_pair(x, 'concat'), [[1, 2, 3, -1]])
  np.testing.assert_array_equal(
      heads.join_pair(x, 'nli'), [[1, 2, 3, -1, 3, -2, -2, 3]])


def test_sinusoidal_positions():
  table = encoder.sinusoidal_positions(50, 8)
  # Vaswani et al. 2017, section 3.5: wavelengths from 2 pi to 10000 * 2 pi.
  np.testing.assert_allclose(table[:, 0], np.sin(np.arange(50)), atol=1e-6)
  np.testing.assert_allclose(
      table[:, 7], np.cos(np.arange(50) / 10_000), atol=1e-6)


def _apply(c, tokens, devices=1):
  p = small.make(c, devices)
  state = p.init()
  return p.model.apply(
      {'params': state.params, **state.variables}, tokens, train=False)


@pytest.mark.parametrize('pooling', encoder.POOLING)
@pytest.mark.parametrize('model', ['transformer', 'linear_transformer'])
def test_more_padding_never_changes_scores(model, pooling):
  c = small.config(model, 'listops')
  c.encoder.pooling = pooling
  # Sinusoidal: a learned table would have another size at another length.
  c.encoder.positions = 'sinusoidal'
  tokens = small.batch(small.tasks.get('listops'), 4, 24)['tokens']
  longer = np.pad(tokens, ((0, 0), (0, 17)))
  c2 = c.copy_and_resolve_references()
  c2.seq_len = 41
  np.testing.assert_allclose(
      _apply(c, tokens), _apply(c2, longer), rtol=1e-5, atol=1e-5)


def test_unmasked_padding_takes_part():
  c = small.config('transformer', 'listops')
  tokens = small.batch(small.tasks.get('listops'), 4, 24)['tokens']
  masked = _apply(c, tokens)
  c.mask_padding = False
  assert np.abs(np.asarray(masked - _apply(c, tokens))).max() > 1e-4


@pytest.mark.parametrize('head,features', [('concat', 2), ('nli', 4)])
def test_parameters_of_the_retrieval_transformer(head, features):
  """The count of SimpleTRON's retrieval model, written out by hand."""
  import importlib
  c = importlib.import_module('configs.transformer').get_config('retrieval')
  c.encoder.head = head
  shapes = small.make(c).state_shape.params
  total = sum(np.prod(x.shape) for x in jax.tree.leaves(shapes))
  D, F, L, V = 128, 512, 4000, 257
  block = 4 * (D * D + D) + (D * F + F) + (F * D + D) + 2 * 2 * D
  joined = features * D
  head_size = (joined * F + F) + (F * F // 2 + F // 2) + (F // 2 * 2 + 2)
  assert total == V * D + D + L * D + 4 * block + 2 * D + head_size


def test_pair_is_encoded_by_one_encoder():
  c = small.config('transformer', 'retrieval')
  c.encoder.head = 'nli'
  tokens = small.batch(small.tasks.get('retrieval'), 4, 24)['tokens']
  same = np.stack([tokens[:, 0], tokens[:, 0]], axis=1)
  p = small.make(c)
  state = p.init()
  _, captured = p.model.apply(
      {'params': state.params}, same, train=False,
      capture_intermediates=lambda m, _: m.name == 'encoder',
      mutable='intermediates')
  x = captured['intermediates']['encoder']['__call__'][0].reshape(4, 2, -1)
  np.testing.assert_allclose(x[:, 0], x[:, 1], atol=1e-6)
