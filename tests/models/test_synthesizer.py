"""Compares Synthesizer's variants with their equations in float64."""

import functools
import math

import jax
import numpy as np
import pytest

from lra.models.synthesizer import VARIANTS, Mixer
from tests.helpers import mixer_oracle


def _hidden(xp, x, dense):
  y = mixer_oracle.heads(xp, x, dense)
  return xp.where(y > 0, y, 0)


def _logits(xp, params, x, variant):
  """Returns logits [B, H, L, L] by the paper's definitions."""
  batch, length, _ = x.shape
  if variant == 'dense':
    hidden = _hidden(xp, x, params['hidden'])
    logits = xp.einsum('bihd,jhd->bhij', hidden, params['W2'])
    return logits + params['b2'][:, :, 0].T[None, :, None, :]
  if variant == 'random':
    return xp.stack([params['R']] * batch)
  if variant == 'factorised_random':
    r = xp.einsum('ihk,jhk->hij', params['R1'], params['R2'])
    return xp.stack([r] * batch)
  a, b = (xp.einsum('bihd,hdn->bhin', _hidden(xp, x, params[f'hidden_{n}']),
                    params[f'W_{n}']) + params[f'b_{n}'][:, None]
          for n in 'AB')
  short = b.shape[-1]
  assert a.shape[-1] * short >= length
  return xp.stack([a[..., j // short] * b[..., j % short]
                   for j in range(length)], -1)


def oracle(xp, params, x, mask, variant):
  v = mixer_oracle.heads(xp, x, params['value'])
  weights = mixer_oracle.softmax(xp, _logits(xp, params, x, variant), mask)
  return mixer_oracle.merge(xp, mixer_oracle.weigh(xp, weights, v),
                            params['out'])


def _mixer(variant, **options):
  return Mixer(num_heads=2, qkv_width=12, variant=variant, rank=3, **options)


@pytest.mark.every(3)
@pytest.mark.parametrize('variant', VARIANTS)
def test_equals_float64(variant):
  x, mask = mixer_oracle.ragged(43, 20, 0, width=16)
  mixer_oracle.check(_mixer(variant), functools.partial(
      oracle, variant=variant), x, mask)


def test_numbers_of_parameters():
  """Counts without biases are those of the paper's table 1."""
  x, mask = mixer_oracle.ragged(43, width=16)
  a = math.isqrt(43)
  want = {'dense': 16 * 12 + 43 * 12,
          'random': 2 * 43**2,
          'factorised_dense': 2 * 16 * 12 + (a + -(-43 // a)) * 12,
          'factorised_random': 2 * 2 * 43 * 3}
  for variant, count in want.items():
    params = mixer_oracle.shapes(_mixer(variant), x, mask)
    matrices = [p.size for path, p in
                jax.tree_util.tree_leaves_with_path(params)
                if not any(word in jax.tree_util.keystr(path)
                           for word in ('value', 'out', 'bias', "['b"))]
    assert sum(matrices) == count, variant


@pytest.mark.full
@pytest.mark.parametrize('variant, drawn', [
    ('random', {'R'}), ('factorised_random', {'R1', 'R2'})])
def test_fixed_logits_are_no_parameters(variant, drawn):
  x, mask = mixer_oracle.ragged(11, width=16)
  learned, fixed = (_mixer(variant, trainable=t) for t in (True, False))
  kept = mixer_oracle.init(fixed, x, mask)
  assert kept['constants'].keys() == drawn
  assert not kept['params'].keys() & drawn
  free = {'params': {**kept['params'], **kept['constants']}}
  assert jax.tree.map(np.shape, free['params']) == jax.tree.map(
      np.shape, mixer_oracle.init(learned, x, mask)['params'])

  np.testing.assert_array_equal(
      mixer_oracle.apply(learned, free, x, mask),
      mixer_oracle.apply(fixed, kept, x, mask))
