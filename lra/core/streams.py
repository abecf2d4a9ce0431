"""Standard streams: a closed reader is not an error, a full disk is one."""

import errno
import io
import os
import sys

from lra.core.errors import UserError


def keep() -> None:
  """Makes stdout and stderr outlast their readers.

  Text written to a closed pipe or terminal is lost, which is not an error. If
  stdout cannot be written for another reason (a full disk), one UserError is
  raised and later text is lost. Text that stderr cannot take is lost without an
  error. A stream that was closed from the start becomes /dev/null. Otherwise
  the next opened file would get the stream's number, and all its messages.
  """
  _open_nowhere()
  for number, name in ((1, 'stdout'), (2, 'stderr')):
    setattr(sys, name, writer(number, getattr(sys, name)))


def writer(number: int, before: io.TextIOBase | None) -> io.TextIOWrapper:
  """Returns a stream of a file descriptor whose writes do not fail.

  Args:
    number: the descriptor.
    before: the stream that it replaces; None if that was closed.
  """
  return io.TextIOWrapper(
      io.BufferedWriter(_Lasting(number, 'w', closefd=False)),
      encoding=getattr(before, 'encoding', 'utf-8'),
      errors='backslashreplace', line_buffering=True)


def _open_nowhere():
  """Opens /dev/null for each of stdin, stdout and stderr that is closed."""
  number = os.open(os.devnull, os.O_RDWR)
  while number <= 2:
    os.set_inheritable(number, True)
    number = os.open(os.devnull, os.O_RDWR)
  os.close(number)


class _Lasting(io.FileIO):
  """A file whose writes never fail, except for one UserError of stdout."""

  def __init__(self, number, mode, **options):
    super().__init__(number, mode, **options)
    self._ignored = (errno.EPIPE, errno.EIO) if self.isatty() else (
        errno.EPIPE,)
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
