"""Tests the baselines of a run, which must be on the run's own data."""

import json

import pytest

from lra.core import tasks
from lra.core.errors import UserError
from lra.data import baselines
from lra.data.prepared import load

TASK = tasks.get('listops_mini')


@pytest.fixture
def data(mini_data):
  return load('listops_mini', mini_data)


def keep(folder, fingerprint, accuracy=0.4):
  path = folder / 'listops_mini.json'
  path.write_text(json.dumps({
      'task': 'listops_mini', 'fingerprint': fingerprint,
      'floors': {'linear': {'accuracy': accuracy, 'how': 'by regression'}}}))


def test_only_a_record_of_the_same_data_adds_its_baselines(data, tmp_path):
  quick = baselines.of_data(TASK, data, tmp_path)
  keep(tmp_path, 'feed00000000')
  assert baselines.of_data(TASK, data, tmp_path) == quick
  keep(tmp_path, data.fingerprint)
  assert baselines.of_data(TASK, data, tmp_path) == quick | {'linear': 0.4}
  assert sorted(quick) == ['first operator', 'majority']


def test_a_record_that_is_not_sound_is_named(data, tmp_path):
  keep(tmp_path, data.fingerprint, accuracy=40)
  with pytest.raises(UserError, match='listops_mini.json .*fl'):
    baselines.of_data(TASK, data, tmp_path)
