"""Standard streams: a closed reader is not an error, a full disk is one."""

import errno
import io
import os
import sys

from lra.core.errors import UserError


def keep() -> None:
  """Makes stdout and stderr outlast their readers.

  Text for a closed pipe or terminal is lost without an error. If stdout fails
  for another reason (a full disk), one UserError is raised. A stream that is
  closed from the start becomes /dev/null, so that no file gets its number.
  """
  number = os.open(os.devnull, os.O_RDWR)
  while number <= 2:
    os.set_inheritable(number, True)
    number = os.open(os.devnull, os.O_RDWR)
  os.close(number)
  sys.stdout, sys.stderr = writer(1, sys.stdout), writer(2, sys.stderr)


def writer(number: int, before: io.TextIOBase | None) -> io.TextIOWrapper:
  """Returns a stream of a file descriptor in place of `before`, if any."""
  return io.TextIOWrapper(
      io.BufferedWriter(_Lasting(number, 'w', closefd=False)),
      encoding=getattr(before, 'encoding', 'utf-8'),
      errors='backslashreplace', line_buffering=True)


class _Lasting(io.FileIO):
  """A file whose writes never fail, except for one UserError of stdout."""

  def __init__(self, number, mode, **options):
    super().__init__(number, mode, **options)
    self._ignored = (errno.EPIPE, *[errno.EIO] * self.isatty())
    self._tells = number == 1

  def write(self, data):
    try:
      return super().write(data)
    except OSError as e:
      if self._tells and e.errno not in self._ignored:
        self._tells = False
        raise UserError(
            f'The output cannot be written ({e.strerror}): make room, or send '
            'it elsewhere, then repeat the command.') from e
      return len(data)
