"""Random feature attention against its equations in float64."""

import mixer_oracle
import numpy as np
import pytest

import small
from lra.errors import UserError
from lra.models.rfa import Mixer


def _phi(xp, x, omega):
  x = x / xp.sqrt((x**2).sum(-1, keepdims=True))
  angle = xp.einsum('blhd,hmd->blhm', x, omega)
  return xp.concatenate([xp.cos(angle), xp.sin(angle)], -1)


def _oracle(omega, gated):
  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    own = omega * params['sigma'][:, None]
    w = xp.einsum('blhm,bshm->bhls', _phi(xp, q, own), _phi(xp, k, own))
    w = w / omega.shape[1] * mask[:, None, None, :]
    if gated:  # the recurrence, solved
      gate = params['gate']
      g = 1 / (1 + xp.exp(-(x @ gate['kernel'] + gate['bias'])))
      g = xp.moveaxis(xp.where(mask[..., None], g, 1), -1, 1)  # [B, H, L]
      total = xp.cumsum(xp.log(g), -1)
      gap = total[..., :, None] - total[..., None, :]
      i = np.arange(x.shape[1])
      seen = i[:, None] >= i
      w = w * xp.exp(xp.where(seen, gap, 0)) * seen * (1 - g)[..., None, :]
    total = w.sum(-1, keepdims=True)
    o = mixer_oracle.weigh(xp, w / (total + 1e-6), v)
    return mixer_oracle.merge(xp, o * mask[:, :, None, None], params['out'])

  return oracle


@pytest.mark.parametrize('gated', [False, True])
def test_equals_the_estimate_of_its_frequencies(gated):
  x, mask = mixer_oracle.ragged(23, 10, 0, width=16)
  mask[0, 5:8] = False  # padding may stand between tokens
  mixer = Mixer(num_heads=2, qkv_width=12, num_features=40, gated=gated,
                chunk_size=7)
  variables = mixer_oracle.init(mixer, x, mask)
  omega = np.asarray(variables['constants']['omega'], np.float64)
  mixer_oracle.check(mixer, _oracle(omega, gated), x, mask,
                     variables=variables, tolerance=1e-4)


def test_many_features_give_softmax_attention_of_unit_vectors():
  x, mask = mixer_oracle.ragged(20, 9, width=16)
  mixer = Mixer(num_heads=2, qkv_width=12, num_features=20_000)
  variables = mixer_oracle.init(mixer, x, mask, noise=0.0)
  params = variables['params']
  q, k, v = (mixer_oracle.heads(np, np.float64(x), params[name])
             for name in ('query', 'key', 'value'))
  q, k = (y / np.linalg.norm(y, axis=-1, keepdims=True) for y in (q, k))
  want = mixer_oracle.merge(
      np, mixer_oracle.attention(np, q, k, v, mask, 1.0), params['out'])
  got = mixer_oracle.apply(mixer, variables, x, mask)
  error = np.abs(got - want)[mask].max() / np.abs(want[mask]).max()
  assert error < 0.05  # by 1 / sqrt(20,000) = 0.007 a weight


def test_gates_have_no_kernel_and_no_first_position_to_read():
  c = small.config('rfa', 'listops')
  c.model.gated = True
  c.encoder.pooling = 'cls'
  with pytest.raises(UserError, match='encoder.pooling'):
    small.make(c)
  with pytest.raises(UserError, match='has no gates'):
    Mixer(gated=True, kernel='pallas_gpu').kernel_for(16, 16)
