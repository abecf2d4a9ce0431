"""Holds back for a moment the text that libraries write to stderr.

JAX writes a stack of up to 60 lines before it aborts a process that has lost
the others. The handler of the abort decides whether to show them (`take`).
Text that Python writes is not held back.
"""

import atexit
import contextlib
import faulthandler
import os
import sys
import tempfile
import threading
import time

from lra.core import signals, streams

SECONDS = 1.0  # text is held back for so long at least, for twice at most


class _State:
  """The file in the place of stderr, and how many of its bytes are shown."""
  file, real, shown = None, 2, 0
  lock = threading.Lock()


def begin() -> None:
  """Begins to hold back text, except for text that Python writes."""
  if _State.file:
    return
  sys.stderr.flush()
  _State.real = os.dup(2)
  _State.file = tempfile.TemporaryFile('a+b', buffering=0)  # noqa: SIM115
  os.dup2(_State.file.fileno(), 2)
  sys.stderr = streams.writer(_State.real, sys.stderr)
  signals.say_to(_State.real)
  if faulthandler.is_enabled():
    faulthandler.enable(_State.real)
  atexit.register(show)
  threading.Thread(target=_show_late, daemon=True).start()


def take() -> bytes:
  """Returns the text held back, which will not be shown."""
  if not _State.file or not _State.lock.acquire(timeout=1):
    return b''
  try:
    return _pending(os.fstat(_State.file.fileno()).st_size)
  finally:
    _State.lock.release()


def show() -> None:
  """Shows the text held back."""
  write(take())


def write(text: bytes) -> None:
  """Writes to the real stderr."""
  with contextlib.suppress(OSError):  # the reader of stderr may be gone
    os.write(_State.real, text)


def _pending(end):
  """Returns the text written up to byte `end` and not taken before."""
  begin, _State.shown = _State.shown, max(_State.shown, end)
  return os.pread(_State.file.fileno(), max(end - begin, 0), begin)


def _show_late():
  """Shows text older than SECONDS; runs as a thread."""
  end = 0
  while True:
    with _State.lock:
      write(_pending(end))
      end = os.fstat(_State.file.fileno()).st_size
    time.sleep(SECONDS)
