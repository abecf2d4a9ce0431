"""Tests experiments, and that mistakes in a mixer's file give one sentence."""

import flax.linen as nn
import jax.numpy as jnp
import ml_collections
import pytest

from lra.core.errors import UserError
from lra.run import experiment
from lra.schema import identity
from tests.helpers import small


class _Plain(nn.Module):
  """A mixer without the fields `layer` and `num_layers`."""
  slope: float = 1.0
  dtype: jnp.dtype = jnp.float32


def test_a_mixer_gets_what_it_has_fields_for(monkeypatch):
  monkeypatch.setattr(experiment.models, 'mixer', lambda name: _Plain)
  model = ml_collections.ConfigDict({'name': 'foo', 'slope': 2.0})
  made = experiment.make_mixer(model)(
      dtype=jnp.bfloat16, layer=3, num_layers=4, name='mixer')
  assert (made.slope, made.dtype, made.name) == (2.0, jnp.bfloat16, 'mixer')


def test_a_later_change_of_the_config_changes_no_experiment(tmp_path):
  config = small.config('lightning', 'listops')
  config.encoder.pooling = 'mean'
  made = experiment.resolve(config, folder=tmp_path)
  config.encoder.pooling = 'cls'
  assert made.config.encoder.pooling == 'mean'
  with pytest.raises(UserError, match='pooling=cls'):
    experiment.resolve(config)


def test_a_seed_is_a_run_of_its_own(tmp_path):
  made = experiment.resolve(
      small.config('transformer', 'listops'), folder=tmp_path)
  other = made.with_seed(3)
  assert (made.config.seed, other.config.seed) == (0, 3)
  assert other.objective.config.seed == 3
  assert other.folder == identity.run_folder(other.config.to_dict())
