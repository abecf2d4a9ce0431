"""Compares Kimi Delta Attention with its recurrence, token by token."""

import numpy as np
import pytest

from lra.models.kda import Mixer
from tests.helpers import delta_oracle, mixer_oracle
from tests.helpers.state_space_oracle import sigmoid


def oracle_of(direction='bidirectional'):
  def oracle(xp, p, x, mask):
    step, gate = (
        delta_oracle.heads(xp, x @ p[f'{name}_down']['kernel'],
                           p[f'{name}_up']) for name in ('decay', 'gate'))
    return delta_oracle.delta_mixer(
        xp, p, x, mask, direction, log_decay=delta_oracle.decay(xp, step, p),
        gate=sigmoid(xp, gate))

  return oracle


@pytest.mark.every(99, 1)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal'}], ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=16)
  mask[0, 5] = False
  mixer_oracle.check(Mixer(num_heads=2, **options), oracle_of(**options), x,
                     mask)


def test_start_of_the_decays():
  """Rates begin between 1 and 16, not near 0 as those of Gated DeltaNet may."""
  x, mask = mixer_oracle.ragged(3, width=800)
  p = mixer_oracle.start(Mixer(num_heads=200), x, mask)
  rate = np.exp(p['log_rate'])
  assert 1 <= rate.min() < 1.5 and 15.5 < rate.max() <= 16
