"""Tests pooling, pairs and the decoder of compression."""

import jax
import jax.numpy as jnp
import numpy as np

from lra.nn import heads
from lra.nn.encoder import sinusoidal_positions
from lra.schema import fields
from tests.helpers import recurrent_oracle as parts
from tests.helpers import small
from tests.helpers.encoder_reference import rms_norm

POOLING = fields.choices(fields.FIELDS['encoder.pooling'])


def test_pooling_reads_true_tokens_only():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(3, 6, 4)).astype(np.float32)
  lengths = np.array([6, 2, 0])
  mask = np.arange(6) < lengths[:, None]
  got = {p: np.asarray(heads.pool(jnp.asarray(x), jnp.asarray(mask), p))
         for p in POOLING}
  for b, n in enumerate(lengths):
    mean = x[b, :n].mean(axis=0) if n else np.zeros(4)
    small.assert_close(got['mean'][b], mean)
    np.testing.assert_array_equal(got['last'][b], x[b, max(n - 1, 0)])
    np.testing.assert_array_equal(got['cls'][b], x[b, 0])
    np.testing.assert_array_equal(got['first'][b], x[b, 0])


def test_the_last_token_is_no_matter_of_counting():
  """Pooling `last` finds the last true token, though padding lies between."""
  x = np.arange(10, dtype=np.float32).reshape(2, 5, 1)
  mask = np.array([[True, False, False, True, False],
                   [False, True, True, False, True]])
  got = heads.pool(jnp.asarray(x), jnp.asarray(mask), 'last')
  np.testing.assert_array_equal(got, [[3], [9]])


def test_the_mean_of_many_bfloat16_is_rounded_once():
  """The mean sums in float32: sums of these integers are exact."""
  x = np.random.default_rng(0).integers(0, 256, (2, 4000, 64))
  mask = np.arange(4000) < np.array([[4000], [3001]])
  got = heads.pool(jnp.asarray(x, jnp.bfloat16), jnp.asarray(mask), 'mean')
  want = (x * mask[..., None]).sum(1) / mask.sum(1)[:, None]
  np.testing.assert_array_equal(got, want.astype(jnp.bfloat16))


def test_mean_over_positions_divides_by_their_number():
  """Padding adds nothing to the sum, as in Nystromformer's code."""
  x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
  mask = np.array([[True, True, False], [True, True, True]])
  got = heads.pool(jnp.asarray(x), jnp.asarray(mask), 'mean', 'positions')
  small.assert_close(got, np.float64([[(0 + 2) / 3, (1 + 3) / 3], [8, 9]]))


def test_pair_features():
  x = jnp.array([[[1.0, 2.0], [3.0, -1.0]]])
  np.testing.assert_array_equal(
      heads.join_pair(x, 'concat'), [[1, 2, 3, -1]])
  np.testing.assert_array_equal(
      heads.join_pair(x, 'nli'), [[1, 2, 3, -1, 3, -2, -2, 3]])


def test_the_decoder_equals_float64_and_reads_the_last_token_only():
  c = small.config('linear_transformer', 'mad_compression')
  p = small.make(c)
  params = small.random_params(p)
  tokens = small.batch(small.tasks.get('mad_compression'), 3, 32)['tokens']
  tokens = np.maximum(tokens, 1)
  model = p.model
  variables = {'params': params}
  got = np.asarray(model.apply(variables, tokens, train=False))
  x_BxLxD, _ = model.bind(variables).encoder(tokens, train=False)
  x = np.asarray(x_BxLxD, np.float64)[:, -1:] + sinusoidal_positions(32, 16)
  params = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
  for i in range(2):
    x = parts.gelu(np, parts.dense(
        rms_norm(x, params[f'norm_{i}']), params[f'hidden_{i}']))
  want = parts.dense(rms_norm(x, params['norm_2']), params['logits'])
  assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
