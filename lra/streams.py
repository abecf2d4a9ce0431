"""Standard streams that nobody's reading cannot break."""

import io
import os
import sys


def keep() -> None:
  """Makes stdout and stderr last, whoever stops reading them.

  What is written to a closed pipe or terminal is lost and no error. A stream
  that was closed from the start leads nowhere: otherwise the next file that is
  opened would have its number, and be written to by every message.
  """
  _open_nowhere()
  for number, name in ((1, 'stdout'), (2, 'stderr')):
    setattr(sys, name, writer(number, getattr(sys, name)))


def writer(number: int, before: io.TextIOBase | None) -> io.TextIOWrapper:
  """A stream of a file descriptor whose writes do not fail.

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
  """A file whose writes do not fail."""

  def write(self, data):
    try:
      return super().write(data)
    except OSError:
      return len(data)
