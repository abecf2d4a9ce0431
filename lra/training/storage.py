"""Whether what cannot be read is damaged, or its storage in trouble."""

import errno
import os
import pathlib
import re
from collections.abc import Iterator

from lra import machine
from lra.errors import UserError

# How errors of storage begin that say nothing of what is stored.
_STORAGE = ('PERMISSION_DENIED', 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'ABORTED')
# Of a file that is not there, which is damage.
_MISSING = (errno.ENOENT, errno.ENOTDIR)


def check_is_damage(path: pathlib.Path, error: Exception) -> None:
  """Raises what else kept a folder from being read, and leaves it alone.

  Raises:
    UserError: its storage did not give what it holds.
    Exception: `error`, where memory ran out.
  """
  why = next(filter(None, map(_of_storage, _causes(error))), '')
  if why:
    raise UserError(
        f'Cannot read {path} ({why}): see to it, then repeat the command.'
    ) from error
  for cause in _causes(error):
    if isinstance(cause, MemoryError) or machine.out_of_memory(cause):
      raise error


def _causes(error) -> Iterator[BaseException]:
  """An error and what it was raised from, or while that was handled."""
  while error is not None:
    yield error
    error = error.__cause__ or (
        None if error.__suppress_context__ else error.__context__)


def _of_storage(error):
  """What a storage says that has not given what it holds, '' for none.

  Tensorstore says somewhere in its text which error of the system it was.
  """
  text = ' '.join(str(error).split())
  number = re.search(r"os_error_code='?(\d+)", text)
  if number:
    number = int(number[1])
    return '' if number in _MISSING else os.strerror(number)
  of_system = isinstance(error, OSError) and not isinstance(
      error, FileNotFoundError | NotADirectoryError)
  return text[:200] if of_system or text.startswith(_STORAGE) else ''
