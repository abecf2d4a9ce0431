"""Compares optimised, efficient and super attention with float64 equations."""

import jax
import numpy as np
import pytest

from lra.models import efficient, optimised
from lra.models import super as super_attention
from tests.helpers import mixer_oracle, small


def optimised_oracle(xp, params, x, mask):
  q, k = (mixer_oracle.heads(xp, x, params[n]) for n in ('query', 'key'))
  num_heads, width = q.shape[2], x.shape[2] // q.shape[2]
  v = xp.stack([x[..., i * width:(i + 1) * width]
                for i in range(num_heads)], 2)
  o = mixer_oracle.attention(xp, q, k, v, mask, q.shape[-1]**-0.5)
  return mixer_oracle.merge(xp, o, params['out'])


def _one_head(xp, params, x, v, mask):
  q = x @ params['query']['kernel'][:, 0] + params['query']['bias'][0]
  o = mixer_oracle.attention(xp, q[:, :, None], x[:, :, None], v[:, :, None],
                             mask, x.shape[-1]**-0.5)
  return o[:, :, 0] @ params['out']['kernel'][0] + params['out']['bias']


def efficient_oracle(xp, params, x, mask):
  return _one_head(xp, params, x, x, mask)


def super_oracle(xp, params, x, mask):
  align = params['alignment']  # kernel [L_in, L_out]: Wa transposed
  v = xp.einsum('ij,bjd->bid', align['kernel'].T, x * mask[..., None])
  return _one_head(xp, params, x, v + align['bias'][:, None], mask)


MIXERS = {
    'optimised': (lambda **kw: optimised.Mixer(num_heads=2, qkv_width=16, **kw),
                  optimised_oracle),
    'efficient': (efficient.Mixer, efficient_oracle),
    'super': (super_attention.Mixer, super_oracle),
}


@pytest.mark.parametrize('kernel', [mixer_oracle.full('dense'), 'chunked'])
@pytest.mark.parametrize('name', MIXERS)
def test_equals_float64(name, kernel):
  make, oracle = MIXERS[name]
  x, mask = mixer_oracle.ragged(61, 20, 0, width=16)
  mixer_oracle.check(make(kernel=kernel), oracle, x, mask)


def test_optimised_takes_queries_narrower_than_the_input():
  x, mask = mixer_oracle.ragged(30, 9, width=16)
  mixer_oracle.check(optimised.Mixer(num_heads=4, qkv_width=8),
                     optimised_oracle, x, mask)


@pytest.mark.parametrize('width', [32, 64, 144])
def test_number_of_parameters(width):
  x, mask = mixer_oracle.ragged(width, width=width)  # L = D
  linear = width**2 + width
  for mixer, want in (
      (optimised.Mixer(qkv_width=width), 3 * linear),
      (efficient.Mixer(), 2 * linear),
      (super_attention.Mixer(), 2 * linear + width**2 + width)):
    params = mixer_oracle.shapes(mixer, x, mask)
    assert sum(p.size for p in jax.tree.leaves(params)) == want


@pytest.mark.parametrize('name', MIXERS)
def test_content_of_padding_changes_nothing(name):
  x, mask = mixer_oracle.ragged(40, 12, width=16)
  mixer = MIXERS[name][0]()
  variables = mixer_oracle.init(mixer, x, mask)
  other = np.where(mask[..., None], x, 5).astype(np.float32)
  outputs = [mixer_oracle.apply(mixer, variables, a, mask)[mask]
             for a in (x, other)]
  small.assert_close(*outputs)
  longer = np.pad(x, [(0, 0), (0, 24), (0, 0)], constant_values=3)
  longer_mask = np.pad(mask, [(0, 0), (0, 24)])
  if name != 'super':  # whose parameters belong to one length
    long = mixer_oracle.apply(mixer, variables, longer, longer_mask)
    small.assert_close(long[:, :40][mask], outputs[0])
