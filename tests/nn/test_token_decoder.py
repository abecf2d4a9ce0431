"""Tests the decoder of compression against float64."""

import jax
import numpy as np

from lra.nn.encoder import sinusoidal_positions
from tests.helpers import small


def _gelu(x):
  return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def _rms(x, scale):
  return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-6) * scale


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
    layer = params[f'hidden_{i}']
    x = _gelu(_rms(x, params[f'norm_{i}']['scale'])
              @ layer['kernel'] + layer['bias'])
  want = (_rms(x, params['norm_2']['scale']) @ params['logits']['kernel']
          + params['logits']['bias'])
  assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
