"""Compares differential attention with its equations in float64."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.differential import Mixer
from tests.helpers import mixer_oracle


def _oracle(layer):
  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    start = 0.8 - 0.6 * np.exp(-0.3 * layer)
    a, b = params['lambda_query'], params['lambda_key']
    weight = (xp.exp((a[0] * b[0]).sum()) - xp.exp((a[1] * b[1]).sum())
              + start)
    heads = []
    for h in range(0, q.shape[2], 2):
      both = xp.concatenate([v[:, :, h:h + 1], v[:, :, h + 1:h + 2]], -1)
      read = [mixer_oracle.attention(
          xp, q[:, :, i:i + 1], k[:, :, i:i + 1], both, mask,
          q.shape[-1]**-0.5) for i in (h, h + 1)]
      o = read[0] - weight * read[1]
      norm = xp.sqrt((o**2).mean(-1, keepdims=True) + 1e-5)
      heads.append((1 - start) * o / norm * params['norm']['scale'])
    return mixer_oracle.merge(
        xp, xp.concatenate(heads, 2).reshape(q.shape), params['out'])
  return oracle


@pytest.mark.parametrize('layer, kernel', [
    (0, 'chunked'), mixer_oracle.full(3, 'dense')])
def test_equals_float64(layer, kernel):
  x, mask = mixer_oracle.ragged(61, 20, width=24)
  mixer_oracle.check(
      Mixer(num_heads=4, qkv_width=12, layer=layer, kernel=kernel),
      _oracle(layer), x, mask)


def test_a_mechanism_that_both_see_cancels():
  """With equal queries and keys and lambda = 1 the two softmaxes cancel."""
  x, mask = mixer_oracle.ragged(20, width=8)
  mixer = Mixer(num_heads=2, qkv_width=8)
  variables = mixer_oracle.init(mixer, x, mask)
  params = dict(variables['params'])
  for name in ('query', 'key'):
    params[name] = {k: np.repeat(v[..., :1, :], 2, axis=-2)
                    for k, v in params[name].items()}
  # exp(log 1.8) - exp(0) + 0.2 = 1
  one = np.zeros((2, 4), np.float32)
  params['lambda_query'], params['lambda_key'] = one.copy(), one.copy()
  params['lambda_query'][0, 0] = np.log(1.8)
  params['lambda_key'][0, 0] = 1.0
  y = mixer_oracle.apply(mixer, {'params': params}, x, mask)
  # A difference of values near 1 leaves 1e-7; the norm divides by sqrt(1e-5).
  np.testing.assert_allclose(
      y, np.broadcast_to(params['out']['bias'], y.shape), atol=1e-3)


def test_an_odd_number_of_heads_is_refused():
  x, mask = mixer_oracle.ragged(4, width=12)
  with pytest.raises(UserError, match='config.model.num_heads=3 cannot'):
    mixer_oracle.shapes(Mixer(num_heads=3, qkv_width=12), x, mask)
