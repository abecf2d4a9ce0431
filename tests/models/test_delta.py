"""Compares mixers with a delta rule with their recurrences, in float64."""

import numpy as np
import pytest

from lra import models
from tests.helpers import delta_oracle, mixer_oracle
from tests.helpers.state_space_oracle import sigmoid


def _gates(xp, p, x):
  """Returns the log decays and the output gates of Gated DeltaNet."""
  step = delta_oracle.heads(xp, x, p['decay'])[..., 0]
  return (delta_oracle.decay(xp, step, p),
          delta_oracle.silu(xp, delta_oracle.heads(xp, x, p['gate'])))


def deltanet(xp, p, x, mask, direction='bidirectional',
             negative_eigenvalues=False, **_):
  return delta_oracle.delta_mixer(
      xp, p, x, mask, direction, beta_scale=2 if negative_eigenvalues else 1)


def gated_deltanet(xp, p, x, mask, direction='bidirectional',
                   negative_eigenvalues=False):
  log_decay, gate = _gates(xp, p, x)
  return delta_oracle.delta_mixer(
      xp, p, x, mask, direction, log_decay=log_decay, gate=gate,
      beta_scale=2 if negative_eigenvalues else 1)


def deltaproduct(xp, p, x, mask, direction='bidirectional', householder=2,
                 forget=True, negative_eigenvalues=True):
  if forget:
    log_decay, gate = _gates(xp, p, x)
  else:
    log_decay = None
    gate = delta_oracle.silu(xp, delta_oracle.heads(xp, x, p['gate']))
  return delta_oracle.delta_mixer(
      xp, p, x, mask, direction, steps=householder, log_decay=log_decay,
      gate=gate, beta_scale=2 if negative_eigenvalues else 1)


def kda(xp, p, x, mask, direction='bidirectional'):
  step, gate = (
      delta_oracle.heads(xp, x @ p[f'{name}_down']['kernel'], p[f'{name}_up'])
      for name in ('decay', 'gate'))
  return delta_oracle.delta_mixer(
      xp, p, x, mask, direction, log_decay=delta_oracle.decay(xp, step, p),
      gate=sigmoid(xp, gate))


# The oracle and its options; the first options of each are the quick ones, but
# DeltaProduct, which compiles for long, tests Gated DeltaNet too.
CASES = {
    deltanet: [{}, {'direction': 'causal', 'negative_eigenvalues': True},
               {'conv_width': 0, 'key_width': 6, 'value_width': 10}],
    gated_deltanet: [{'direction': 'causal', 'negative_eigenvalues': True},
                     {}],
    deltaproduct: [{'direction': 'causal', 'householder': 3}, {},
                   {'forget': False, 'negative_eigenvalues': False,
                    'householder': 1}],
    kda: [{'direction': 'causal'}, {}]}


@pytest.mark.parametrize('oracle, options', [
    pytest.param(oracle, options, id=f'{oracle.__name__} {options}',
                 marks=pytest.mark.full if i or oracle is gated_deltanet
                 else ())
    for oracle, cases in CASES.items() for i, options in enumerate(cases)])
def test_equals_its_recurrence(oracle, options):
  x, mask = mixer_oracle.ragged(13, 9, 0, width=16)
  mask[0, 5] = False  # padding may be anywhere
  mixer_oracle.check(
      models.mixer(oracle.__name__)(num_heads=2, **options),
      lambda *arguments: oracle(*arguments, **options), x, mask)


@pytest.mark.parametrize('name, low', [('gated_deltanet', 0), ('kda', 1)])
def test_start_of_the_decays(name, low):
  """Rates of KDA begin between 1 and 16, others may begin near 0."""
  x, mask = mixer_oracle.ragged(3, width=800)
  p = mixer_oracle.start(models.mixer(name)(num_heads=200), x, mask)
  dt = np.log1p(np.exp(p['dt_bias']))
  assert 0.00099 < dt.min() < 0.0012 and 0.08 < dt.max() < 0.101
  np.testing.assert_allclose(np.log(dt).mean(), np.log(0.01), atol=0.3)
  rate = np.exp(p['log_rate'])
  assert low <= rate.min() < low + 0.5 and 15.5 < rate.max() <= 16
