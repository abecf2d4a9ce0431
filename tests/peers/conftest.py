"""The comparison that each test makes, and the table of what all measured."""

import csv
import io
import pathlib

import pytest

from tests.helpers import mixer_oracle

TABLE = pathlib.Path(__file__).parents[2] / 'lra' / 'results' / 'peers.csv'
COLUMNS = ('test', 'model', 'package', 'version', 'output', 'gradient')


def pytest_addoption(parser):
  parser.addoption(
      '--peers-table', action='store_true',
      help='write lra/results/peers.csv, where no test failed or was skipped')


def pytest_ignore_collect(collection_path, config):
  """Leaves out what holds the old table against the tests that are here."""
  if config.getoption('peers_table', False) and (
      collection_path.name == 'test_table.py'):
    return True
  return None


@pytest.fixture
def check(request, record_property):
  """Holds a mixer equal to what `package` computes, and records how equal.

  `check(package, mixer, theirs, x, mask)`: see `peer.compare`; `variables` are
  drawn unless given.
  """
  from tests.helpers import peer

  def run(package, mixer, theirs, x, mask, *, variables=None, tolerance=1e-5):
    variables = variables or mixer_oracle.init(mixer, x, mask)
    found = peer.compare(mixer, theirs, variables, x, mask, tolerance)
    record_property('peer', [
        f'{request.path.stem}.{request.function.__name__}',
        type(mixer).__module__.rpartition('.')[2], package,
        peer.version(package), *found])

  return run


def pytest_terminal_summary(terminalreporter, config):
  """Writes the largest differences of each test, model and package."""
  if not config.getoption('peers_table', False):
    return
  stats = terminalreporter.stats
  if not stats.get('passed') or any(
      stats.get(name) for name in ('failed', 'error', 'skipped')):
    terminalreporter.write_line(f'{TABLE} is not written: all must pass.')
    return
  largest = {}
  for report in stats['passed']:
    for name, value in report.user_properties:
      if name == 'peer':
        *key, output, gradient = value
        worst = largest.get(tuple(key), (0, 0))
        largest[tuple(key)] = max(output, worst[0]), max(gradient, worst[1])
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(COLUMNS)
  writer.writerows((*key, *(f'{x:.1e}' for x in found))
                   for key, found in sorted(largest.items()))
  TABLE.write_text(text.getvalue())
