"""Compares Kimi Delta Attention with its recurrence, token by token."""

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
