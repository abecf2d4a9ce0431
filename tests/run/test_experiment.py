"""Tests experiments: a later change, and another seed."""

import pytest

from lra.core.errors import UserError
from lra.run import experiment
from lra.schema import identity
from tests.helpers import small


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
