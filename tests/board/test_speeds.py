"""Tests how measured speeds are read for the figures."""

from lra.board import inputs
from lra.core import files


def test_speeds_are_those_of_the_longest_sequences(tmp_path):
  path = tmp_path / 'speed.json'
  files.write_json(path, {
      'device': 'a device', 'shapes': [[4, 1000], [2, 8000]], 'models': {
          'transformer': {'seconds': [1.0, 6.0], 'bytes': [10, 60]},
          'local': {'seconds': [2.0, 1.5], 'bytes': [20, 30]}}})
  found = inputs.speeds(path)
  assert found.what == '2 x 8,000 tokens on a device'
  assert found.faster == {'transformer': 1.0, 'local': 4.0}
  assert found.memory == {'transformer': 60, 'local': 30}
