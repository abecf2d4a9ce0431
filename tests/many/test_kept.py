"""Tests how the progress in checkpoints is read without JAX."""

from lra.core import files
from lra.many import kept


def test_the_newest_is_the_one_of_most_steps(tmp_path):
  """Steps are compared as numbers; as names, 9 would come after 10."""
  assert kept.newest(tmp_path) == (0, {})
  for step in (9, 10):
    files.write_json(
        tmp_path / f'checkpoints/last/{step}/memory/metadata',
        {'timed_steps': step})
  assert kept.newest(tmp_path) == (10, {'timed_steps': 10})


def test_what_cannot_be_read_is_left_to_the_run(tmp_path):
  path = tmp_path / 'checkpoints/last/3/memory/metadata'
  path.parent.mkdir(parents=True)
  path.write_text('{"torn')
  assert kept.newest(tmp_path) == (3, {})
