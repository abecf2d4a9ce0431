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
  """Makes a directory and holds its lock, which ends with the process."""
  path = directory / '.lock'
  while True:
    directory.mkdir(parents=True, exist_ok=True)
    try:
      f = files.lock_file(path)
    except FileNotFoundError:
      if directory.exists():
        raise
      continue  # a failed process removed the directory, see `remove_traces`
    with f:
      try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError:
        print(f'Waiting for another process that is preparing {directory}.',
              file=sys.stderr)
        fcntl.flock(f, fcntl.LOCK_EX)
      if _is_at(f, path):
        yield
        return


def _is_at(f, path):
  try:
    return os.path.samestat(os.fstat(f.fileno()), path.stat())
  except FileNotFoundError:
    return False


def missing(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the folder and its parents that do not exist, lowest first."""
  return [f for f in (folder, *folder.parents) if not f.exists()]


def remove_leftovers(path: pathlib.Path) -> None:
  """Removes `path` and the leftovers of killed preparations beside it."""
  if path.exists():
    path.rename(path.with_name(f'incomplete.old_{path.name}'))
  for leftover in path.parent.glob(f'incomplete.*_{path.name}'):
    shutil.rmtree(leftover, ignore_errors=True)


def remove_traces(path: pathlib.Path, new: list[pathlib.Path]) -> None:
  """Removes the files of a failed preparation; the caller holds the lock.

  `path` is ROOT/name/variant/version. `new` is the result of `missing(ROOT)`
  before the preparation: these folders are removed too if they are empty.
  """
  folder = path.parents[1]
  if not any(folder.glob('*/*/dataset_info.json')):
    shutil.rmtree(folder / '.config', ignore_errors=True)
  if not new:
    return
  downloads = folder.parent / 'downloads'
  with contextlib.suppress(OSError):
    (path.parent / '.lock').unlink()
  for folder in (downloads / 'extracted', downloads, *path.parents[:2], *new):
    with contextlib.suppress(OSError):  # the folder is not empty, or missing
      folder.rmdir()
