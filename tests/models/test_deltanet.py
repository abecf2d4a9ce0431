"""Compares DeltaNet with its recurrence, token by token, in float64."""

import pytest

from lra.core.errors import UserError
from lra.models.deltanet import Mixer
from tests.helpers import delta_oracle, mixer_oracle


@pytest.mark.every(99)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'negative_eigenvalues': True},
    {'conv_width': 0, 'key_width': 6, 'value_width': 10}], ids=str)
def test_equals_its_recurrence(options):
  def oracle(xp, p, x, mask):
    return delta_oracle.delta_mixer(
        xp, p, x, mask, options.get('direction', 'bidirectional'),
        beta_scale=2 if options.get('negative_eigenvalues') else 1)

  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, 5] = False  # padding may be anywhere
  mixer_oracle.check(Mixer(num_heads=2, **options), oracle, x, mask)


def test_size_of_the_state():
  assert Mixer(num_heads=4).state_size(32) == 2 * 4 * 8 * 8
  assert Mixer(num_heads=4, direction='causal', key_width=8).state_size(
      32) == 4 * 2 * 8


@pytest.mark.parametrize('options, match', [
    ({'num_heads': 5}, 'num_heads=5'),
    ({'num_heads': 2, 'key_width': 7}, 'width of 7'),
    ({'num_heads': 2, 'kernel': 'pallas_gpu'}, 'kernel=pallas_gpu'),
    ({'num_heads': 2, 'direction': 'both'}, 'direction')])
def test_refusals(options, match):
  x, mask = mixer_oracle.ragged(4, width=6)
  with pytest.raises(UserError, match=match):
    mixer_oracle.shapes(Mixer(**options), x, mask)
