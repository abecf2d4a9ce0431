"""Locks the folders of data sets, and removes traces of failures."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import sys

from lra.core import files


@contextlib.contextmanager
def lock(directory: pathlib.Path):
  """Makes ROOT/name/variant and holds its lock, which ends with the process.

  If an exception leaves the context, the folders that it made are removed,
  unless another process has put something into them.
  """
  path = directory / '.lock'
  new = [f for f in (directory, *directory.parents) if not f.exists()]
  while True:
    directory.mkdir(parents=True, exist_ok=True)
    try:
      f = files.lock_file(path)
    except FileNotFoundError:
      if directory.exists():
        raise
      continue  # a failed process has removed the directory
    with f:
      try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError:
        print(f'Waiting for another process that is preparing {directory}.',
              file=sys.stderr)
        fcntl.flock(f, fcntl.LOCK_EX)
      if not _is_at(f, path):
        continue
      try:
        yield
      except BaseException:
        _remove_traces(directory, new)
        raise
      return


def _is_at(f, path):
  try:
    return os.path.samestat(os.fstat(f.fileno()), path.stat())
  except FileNotFoundError:
    return False


def _remove_traces(directory, new):
  of_set, downloads = directory.parent, directory.parents[1] / 'downloads'
  if not any(of_set.glob('*/*/dataset_info.json')):
    shutil.rmtree(of_set / '.config', ignore_errors=True)
  if directory in new:
    (directory / '.lock').unlink(missing_ok=True)
  for folder in (downloads / 'extracted', downloads, *new):
    with contextlib.suppress(OSError):  # the folder is not empty, or missing
      folder.rmdir()


def remove_leftovers(path: pathlib.Path) -> None:
  """Removes `path` and the leftovers of killed preparations beside it."""
  if path.exists():
    path.rename(path.with_name(f'incomplete.old_{path.name}'))
  for leftover in path.parent.glob(f'incomplete.*_{path.name}'):
    shutil.rmtree(leftover, ignore_errors=True)
