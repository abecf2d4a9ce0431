"""The comparison that each test makes, and the table of their results."""

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
      help='write lra/results/peers.csv if all tests run and pass')


def pytest_ignore_collect(collection_path, config):
  """Skips test_table.py, which checks the old table, if a new one is made."""
  if config.getoption('peers_table', False) and (
      collection_path.name == 'test_table.py'):
    return True
  return None


@pytest.fixture
def check(request, record_property):
  """Returns a function that compares a mixer with the package's `theirs`.

  It also records the differences. For its arguments see `peer.compare`;
  `variables` are random unless given.
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
  """Writes the largest differences of each test, model and package to TABLE."""
  if not config.getoption('peers_table', False):
    return
  stats = terminalreporter.stats
  if not stats.get('passed') or any(
      stats.get(name) for name in ('failed', 'error', 'skipped')):
    terminalreporter.write_line(
        f'{TABLE} is not written: every test must run and pass.')
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
