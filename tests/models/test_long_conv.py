"""Compares long convolutions with sums over pairs of tokens, in float64."""

import jax
import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.long_conv import Mixer
from tests.helpers import mixer_oracle
from tests.helpers.state_space_oracle import glu


def _oracle(direction='bidirectional', squash=0.003, **_):
  def oracle(xp, p, x, mask):
    x = xp.where(mask[..., None], x, 0)
    i = np.arange(x.shape[1])
    parts = []
    for c, own in enumerate(p['d']):
      y = x * own
      for name in ('kernels', 'kernels_reverse')[
          :1 + (direction == 'bidirectional')]:
        w = p[name][c]
        taps = xp.sign(w) * xp.maximum(abs(w) - squash, 0)
        lag = i[:, None] - i[None]
        if name == 'kernels_reverse':
          lag = -lag - 1
        table = xp.where(lag >= 0, taps[:, np.maximum(lag, 0)], 0)
        y = y + xp.einsum('dts,bsd->btd', table, x)
      parts.append(y)
    return glu(xp, xp.concatenate(parts, -1), p['output'], 'full_glu',
               exact=True)

  return oracle


@pytest.mark.every(2)
@pytest.mark.parametrize('options', [
    {'full_length': 20}, {'direction': 'causal', 'squash': 0.05}], ids=str)
def test_equals_the_sums(options):
  x, mask = mixer_oracle.ragged(17, 9, 0, width=6)
  mixer_oracle.check(Mixer(**options), _oracle(**options), x, mask)


def test_taps_are_dropped_for_a_whole_batch():
  x, mask = mixer_oracle.ragged(20, width=6)
  x, mask = np.repeat(x, 2, 0), np.repeat(mask, 2, 0)
  mixer = Mixer(kernel_dropout=0.5)
  variables = mixer_oracle.init(mixer, x, mask)
  train = jax.jit(lambda key: mixer.apply(
      variables, x, mask, train=True, rngs={'dropout': key}))
  one, other = (np.asarray(train(jax.random.key(seed))) for seed in (0, 1))
  still = mixer_oracle.apply(mixer, variables, x, mask)
  np.testing.assert_allclose(one[0], one[1], rtol=1e-6)
  assert np.abs(one - other).max() > 1e-3 < np.abs(one - still).max()


def test_unknown_direction():
  x, mask = mixer_oracle.ragged(4, width=6)
  with pytest.raises(UserError, match='direction'):
    mixer_oracle.shapes(Mixer(direction='both'), x, mask)
