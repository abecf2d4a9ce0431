"""Compares the Transformer with softmax(Q K^T / sqrt(Dh)) V in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models import transformer, transformer_alibi, transformer_t5
from lra.models.transformer import Mixer
from tests.helpers import mixer_oracle, small


def oracle(xp, params, x, mask):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  o = mixer_oracle.attention(xp, q, k, v, mask, q.shape[-1]**-0.5)
  return mixer_oracle.merge(xp, o, params['out'])


@pytest.mark.parametrize('kernel,bias', [
    ('dense', True), ('chunked', True), ('auto', False)])
def test_equals_float64(kernel, bias):
  x, mask = mixer_oracle.ragged(61, 20, 0, width=24)
  mixer = Mixer(num_heads=3, qkv_width=12, kernel=kernel, qkv_bias=bias)
  mixer_oracle.check(mixer, oracle, x, mask)
  params = mixer_oracle.shapes(mixer, x, mask)
  assert ('bias' in params['query']) == bias


@pytest.mark.full
def test_chunked_equals_float64_over_several_tiles():
  x, mask = mixer_oracle.ragged(1100, 600, width=8)
  mixer_oracle.check(Mixer(num_heads=2, qkv_width=8, kernel='chunked'),
                     oracle, x, mask)


@pytest.mark.parametrize('width', [32, 64, 144])
def test_number_of_parameters(width):
  x, mask = mixer_oracle.ragged(4, width=width)
  params = mixer_oracle.shapes(Mixer(qkv_width=width), x, mask)
  count = sum(p.size for p in jax.tree.leaves(params))
  assert count == 4 * (width**2 + width)


@pytest.mark.parametrize('kernel', ['dense', mixer_oracle.full('chunked')])
def test_longer_padding_changes_nothing(kernel):
  x, mask = mixer_oracle.ragged(60, 20, width=16)
  mixer = Mixer(num_heads=2, qkv_width=16, kernel=kernel)
  variables = mixer_oracle.init(mixer, x, mask)
  longer = np.concatenate([x, np.full((2, 30, 16), 7, np.float32)], axis=1)
  longer_mask = np.pad(mask, [(0, 0), (0, 30)])
  short = mixer_oracle.apply(mixer, variables, x, mask)
  long = mixer_oracle.apply(mixer, variables, longer, longer_mask)[:, :60]
  small.assert_close(long[mask], short[mask])


@pytest.mark.parametrize('module', [
    transformer, mixer_oracle.full(transformer_alibi),
    mixer_oracle.full(transformer_t5)])
def test_dropout_drops_weights_in_training_only_and_is_unbiased(module):
  x, mask = mixer_oracle.ragged(12, 5, width=8)
  mixer = module.Mixer(num_heads=2, qkv_width=8, attention_dropout=0.5)
  variables = mixer_oracle.init(mixer, x, mask)
  still = mixer_oracle.apply(mixer, variables, x, mask)

  def drop(key):
    return mixer.apply(variables, x, mask, train=True, rngs={'dropout': key})

  keys = jax.random.split(jax.random.key(0), 2000)
  samples = np.asarray(mixer_oracle.quick_jit(jax.vmap(drop))(keys))
  assert np.abs(samples[0] - samples[1]).max() > 0.01
  error = samples.std(0) / np.sqrt(len(samples))
  assert (np.abs(samples.mean(0) - still) <= 5 * error + 1e-6).all()


def test_dropout_with_a_kernel_that_drops_no_weights_is_refused():
  x, mask = mixer_oracle.ragged(12, width=8)
  mixer = Mixer(num_heads=2, qkv_width=8, attention_dropout=0.5,
                kernel='splash')
  with pytest.raises(UserError, match='attention_dropout'):
    mixer_oracle.shapes(mixer, x, mask)


def test_heads_that_do_not_divide_are_refused():
  x, mask = mixer_oracle.ragged(12, width=8)
  with pytest.raises(UserError, match='3 heads'):
    mixer_oracle.shapes(Mixer(num_heads=3, qkv_width=8), x, mask)


def test_record_names_the_kernel():
  assert Mixer(kernel='dense').kernel_for(100, 512) == 'dense'
  assert Mixer(attention_dropout=0.1).kernel_for(100, 512) == 'chunked'
  assert Mixer(dtype=jnp.float32).kernel_for(4001, 512) == 'chunked'
