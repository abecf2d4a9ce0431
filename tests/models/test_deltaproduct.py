"""Compares DeltaProduct with its recurrence, step by step, in float64."""

import pytest

from lra.models.deltaproduct import Mixer
from tests.helpers import delta_oracle, mixer_oracle


@pytest.mark.every(99, 1)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'householder': 3},
    {'forget': False, 'negative_eigenvalues': False, 'householder': 1}],
    ids=str)
def test_equals_its_recurrence(options):
  steps = options.get('householder', 2)

  def oracle(xp, p, x, mask):
    log_decay = None
    if options.get('forget', True):
      step = delta_oracle.heads(xp, x, p['decay'])[..., 0]
      log_decay = delta_oracle.decay(xp, step, p)
    gate = delta_oracle.silu(xp, delta_oracle.heads(xp, x, p['gate']))
    return delta_oracle.delta_mixer(
        xp, p, x, mask, options.get('direction', 'bidirectional'), steps=steps,
        log_decay=log_decay, gate=gate,
        beta_scale=2 if options.get('negative_eigenvalues', True) else 1)

  x, mask = mixer_oracle.ragged(13, 9, 0, width=16)
  mask[0, 5] = False
  mixer_oracle.check(Mixer(num_heads=2, **options), oracle, x, mask)
