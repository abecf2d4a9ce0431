"""Distinguishes a damaged checkpoint from a failure of its storage."""

import errno
import os
import pathlib
import re
from collections.abc import Iterator

from lra.errors import UserError
from lra.system import machine

# Beginnings of storage errors that do not mean damage.
_STORAGE = ('PERMISSION_DENIED', 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'ABORTED')
# Errors of a missing file, which is damage.
_MISSING = (errno.ENOENT, errno.ENOTDIR)


def check_is_damage(path: pathlib.Path, error: Exception) -> None:
  """Raises an error if a folder is unreadable, but not because of damage.

  Args:
    path: the folder.
    error: the error of reading it.

  Raises:
    UserError: the storage has failed.
    Exception: `error`, if memory ran out.
  """
  why = next(filter(None, map(_of_storage, _causes(error))), '')
  if why:
    raise UserError(
        f'Cannot read {path} ({why}): fix this, then repeat the command.'
    ) from error
  for cause in _causes(error):
    if isinstance(cause, MemoryError) or machine.out_of_memory(cause):
      raise error


def _causes(error) -> Iterator[BaseException]:
  """Yields an error, then each earlier error that led to the one before."""
  while error is not None:
    yield error
    error = error.__cause__ or (
        None if error.__suppress_context__ else error.__context__)


def _of_storage(error):
  """Returns the reason if an error is a failure of the storage, else ''.

  Tensorstore puts the number of the system's error somewhere in its text.
  """
  text = ' '.join(str(error).split())
  number = re.search(r"os_error_code='?(\d+)", text)
  if number:
    number = int(number[1])
    return '' if number in _MISSING else os.strerror(number)
  of_system = isinstance(error, OSError) and not isinstance(
      error, FileNotFoundError | NotADirectoryError)
  return text[:200] if of_system or text.startswith(_STORAGE) else ''
