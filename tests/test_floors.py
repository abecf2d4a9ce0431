"""Floors of a run: those of its very data."""

import json

import pytest

from data_prep.content import split_of
from lra import tasks
from lra.data import floors
from lra.data.prepared import Prepared

SPLITS = {
    'train': split_of([b'ab', b'ba', b'bb'], [1, 1, 0]),
    'val': split_of([b'a'], [0]),
    'test': split_of([b'a', b'b', b'ab', b'bba'], [1, 0, 0, 1]),
}


@pytest.mark.parametrize('fingerprint, known', [
    ('0123', {'majority': 0.5, 'byte n-grams': 0.75}),
    ('4567', {'majority': 0.5})])
def test_recorded_floors_count_on_the_same_data_only(
    tmp_path, fingerprint, known):
  (tmp_path / 'text.json').write_text(json.dumps({
      'task': 'text', 'fingerprint': '0123', 'floors': {
          'byte n-grams': {'accuracy': 0.75, 'how': 'logistic regression'}}}))
  data = Prepared(SPLITS, fingerprint, {})
  assert floors.of_data(tasks.get('text'), data, tmp_path) == known
