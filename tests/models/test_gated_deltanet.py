"""Compares Gated DeltaNet with its recurrence, token by token, in float64."""

import numpy as np
import pytest

from lra.models.gated_deltanet import Mixer
from tests.helpers import delta_oracle, mixer_oracle


@pytest.mark.every(99, 1)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'negative_eigenvalues': True}], ids=str)
def test_equals_its_recurrence(options):
  def oracle(xp, p, x, mask):
    step = delta_oracle.heads(xp, x, p['decay'])[..., 0]
    gate = delta_oracle.silu(xp, delta_oracle.heads(xp, x, p['gate']))
    return delta_oracle.delta_mixer(
        xp, p, x, mask, options.get('direction', 'bidirectional'),
        log_decay=delta_oracle.decay(xp, step, p), gate=gate,
        beta_scale=2 if options.get('negative_eigenvalues') else 1)

  x, mask = mixer_oracle.ragged(19, 9, 0, width=16)
  mask[0, 5] = False
  mixer_oracle.check(Mixer(num_heads=2, **options), oracle, x, mask)


def test_start_of_the_decays():
  x, mask = mixer_oracle.ragged(3, width=800)
  p = mixer_oracle.start(Mixer(num_heads=200), x, mask)
  dt = np.log1p(np.exp(p['dt_bias']))
  assert 0.00099 < dt.min() < 0.0012 and 0.08 < dt.max() < 0.101
  np.testing.assert_allclose(np.log(dt).mean(), np.log(0.01), atol=0.3)
  rate = np.exp(p['log_rate'])
  assert 0 < rate.min() < 0.5 and 15.5 < rate.max() <= 16
