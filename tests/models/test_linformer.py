"""Compares Linformer with its equation in float64."""

import functools

import jax
import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.linformer import Mixer
from tests.helpers import mixer_oracle, small


def oracle(xp, params, x, mask, sharing='kv'):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  e = params['E']
  f = e if sharing == 'kv' else params['F']
  compressed = []
  for y, matrix in ((k, e), (v, f)):
    y = y * mask[:, :, None, None]
    compressed.append(xp.stack([
        xp.einsum('bld,lm->bmd', y[:, :, h], matrix[h % len(matrix)])
        for h in range(q.shape[2])], 2))
  everything = np.ones((x.shape[0], e.shape[-1]), bool)
  o = mixer_oracle.attention(xp, q, *compressed, everything, q.shape[-1]**-0.5)
  return mixer_oracle.merge(xp, o, params['out'])


@pytest.mark.every(2)
@pytest.mark.parametrize('sharing', [
    'none', mixer_oracle.full('headwise'), 'kv'])
def test_equals_float64(sharing):
  x, mask = mixer_oracle.ragged(61, 20, 0, width=16)
  mixer = Mixer(num_heads=2, qkv_width=12, num_landmarks=10, sharing=sharing)
  mixer_oracle.check(mixer, functools.partial(oracle, sharing=sharing), x,
                     mask)
  params = mixer_oracle.shapes(mixer, x, mask)
  groups = 2 if sharing == 'none' else 1
  assert params['E'].shape == (groups, 61, 10)
  assert ('F' in params) == (sharing != 'kv')


def test_identity_projections_give_softmax_attention():
  """With M = L and E = F = I, Linformer is softmax attention."""
  x, mask = mixer_oracle.ragged(24, 24, width=16)
  mixer = Mixer(num_heads=2, qkv_width=16, num_landmarks=24)
  variables = mixer_oracle.init(mixer, x, mask)
  variables['params']['E'] = np.eye(24, dtype=np.float32)[None]

  def softmax_attention(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    o = mixer_oracle.attention(xp, q, k, v, mask, q.shape[-1]**-0.5)
    return mixer_oracle.merge(xp, o, params['out'])

  exact = jax.tree.map(lambda a: np.asarray(a, np.float64),
                       variables['params'])
  want = softmax_attention(np, exact, x.astype(np.float64), mask)
  got = mixer_oracle.apply(mixer, variables, x, mask)
  mixer_oracle.close(got, want, 1e-5, 'outputs')


def test_padding_adds_nothing_to_the_landmarks():
  """Content and length of the padding do not change outputs at tokens."""
  x, mask = mixer_oracle.ragged(40, 12, width=16)
  mixer = Mixer(num_heads=2, qkv_width=16, num_landmarks=8)
  long = np.pad(x, [(0, 0), (0, 20), (0, 0)], constant_values=3)
  long_mask = np.pad(mask, [(0, 0), (0, 20)])
  variables = mixer_oracle.init(mixer, long, long_mask)
  want = mixer_oracle.apply(mixer, variables, long, long_mask)[:, :40][mask]
  params = dict(variables['params'], E=variables['params']['E'][:, :40])
  other = np.where(mask[..., None], x, 5).astype(np.float32)
  got = mixer_oracle.apply(mixer, {'params': params}, other, mask)[mask]
  small.assert_close(got, want)


def test_unknown_sharing_is_refused():
  x, mask = mixer_oracle.ragged(4, width=16)
  with pytest.raises(UserError, match='none, headwise, kv'):
    mixer_oracle.shapes(Mixer(sharing='layer'), x, mask)
