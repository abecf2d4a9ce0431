"""Handles SIGINT, SIGTERM and SIGHUP of a command, from its first moment on.

The signals are blocked, and a thread waits for them. It gets them at once, even
while the main thread is compiling, and prints their effect:

* While no work would be lost, the process ends at once.
* Work within `later` looks at `reason` and ends when it can.
* Work within `interrupting` is broken off by the exception `Stop`.

These contexts act on the main thread only. Work of other threads must look at
`reason`.

A second Ctrl-C ends the process at once. A closed terminal does not end it: it
only asks for a checkpoint (`hang_ups`).
"""

import contextlib
import os
import select
import signal
import sys
import threading
import time

STOPPED = 75  # exit code of an early stop: the same command resumes
INTERRUPTED = 130  # exit code after a second Ctrl-C

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The effects of a signal.
_AT_ONCE, _LATER, _INTERRUPT = 'at once', 'later', 'interrupt'


class Stop(KeyboardInterrupt):  # noqa: N818
  """A signal broke off the work within `interrupting`."""


class _State:
  """State that the listening thread and the main thread share, under `lock`."""

  def __init__(self):
    self.lock = threading.Lock()
    self.listening = False
    self.modes = [(_AT_ONCE, '')]
    self.reason = ''
    self.hang_ups = 0
    self.has_terminal = False
    self.child = None
    self.stderr = 2


_state = _State()


def listen() -> None:
  """Begins to listen, until the process ends.

  Call it from the main thread, before a library starts a thread. A signal that
  is ignored, as `nohup` does with SIGHUP, stays ignored.
  """
  heard = [s for s in _SIGNALS if signal.getsignal(s) != signal.SIG_IGN]
  signal.pthread_sigmask(signal.SIG_BLOCK, heard)
  signal.signal(signal.SIGUSR1, _interrupt)
  sys.unraisablehook = _interrupting_again(sys.unraisablehook)
  _state.has_terminal = _terminal_answers()
  _state.listening = True
  threading.Thread(target=_wait, args=(heard,), daemon=True).start()


def listening() -> bool:
  """Returns whether `listen` has been called."""
  return _state.listening


def say_to(number: int) -> None:
  """Sends messages to another file descriptor than stderr's."""
  _state.stderr = number


def reason() -> str:
  """Returns the name of the signal that asks for a stop, '' if there is none.
  """
  return _state.reason


def hang_ups() -> int:
  """Returns how often the terminal was closed."""
  return _state.hang_ups


@contextlib.contextmanager
def later(when: str):
  """Context of work that ends itself once there is a `reason`.

  Args:
    when: end of the message that begins with 'will stop'.
  """
  with _mode(_LATER, when):
    yield


@contextlib.contextmanager
def unbroken():
  """Context of short work that is not left half done.

  A signal during the work takes effect after it.
  """
  before = _state.reason
  with _mode(_LATER, 'in a moment'):
    yield
  if _state.reason and not before:
    _act()


@contextlib.contextmanager
def at_once():
  """Context, inside `later`, of work that a signal may end at once."""
  with _mode(_AT_ONCE, ''):
    _act()
    yield


@contextlib.contextmanager
def interrupting():
  """Context of work that is broken off by `Stop`, so that it can tidy up."""
  with _mode(_INTERRUPT, 'in a moment'):
    _act()
    yield
    _act()


@contextlib.contextmanager
def passed_on_to(child):
  """Context in which signals also reach a `subprocess.Popen` or similar object.

  SIGINT is passed on as SIGTERM. A terminal sends SIGINT to the child as well,
  and a second one would end it at once.
  """
  with _state.lock:
    _state.child = child
    if _state.reason:
      child.send_signal(signal.SIGTERM)
  try:
    yield
  finally:
    with _state.lock:
      _state.child = None


@contextlib.contextmanager
def _mode(what, when):
  if not _in_main():
    yield
    return
  with _state.lock:
    _state.modes.append((what, when))
  try:
    yield
  finally:
    with _state.lock:
      _state.modes.pop()


def _act():
  """Carries out, in the main thread, the effect of a signal that has come."""
  if _state.reason and _in_main():
    what, _ = _state.modes[-1]
    if what == _INTERRUPT:
      raise Stop
    if what == _AT_ONCE:
      os._exit(STOPPED)


def _in_main():
  return threading.current_thread() is threading.main_thread()


def _interrupt(*_):
  if _state.modes[-1][0] == _INTERRUPT and _state.reason:
    raise Stop


def _interrupt_main():
  signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


def _interrupting_again(hook):
  """Returns a hook that repeats a `Stop` raised in the garbage collector."""
  def again(unraisable):
    if unraisable.exc_type is Stop:  # raised in the garbage collector
      threading.Timer(0.1, _interrupt_main).start()
    else:
      hook(unraisable)

  return again


def _wait(heard):
  """Waits for the signals, one after another; runs as a thread."""
  while True:
    number = signal.sigwait(heard)
    with _state.lock:
      if number == signal.SIGHUP and _terminal_is_gone():
        _state.hang_ups += 1
        _pass_on(number)
      elif not _state.reason:
        _state.reason = signal.Signals(number).name
        _first(number)
      elif number == signal.SIGINT:
        _say('Stopped at once.')
        _end(INTERRUPTED)


def _first(number):
  what, when = _state.modes[-1]
  if what == _AT_ONCE:
    _say(f'{_state.reason}: stopped; repeat the command to finish its work.')
    _end(STOPPED)
  _say(f'{_state.reason}: will stop {when}; Ctrl-C stops at once.')
  _pass_on(number)
  if what == _INTERRUPT:
    _interrupt_main()


def _pass_on(number):
  if _state.child is not None:
    _state.child.send_signal(
        signal.SIGTERM if number == signal.SIGINT else number)


def _end(code):
  if _state.child is not None:
    _state.child.kill()
  os._exit(code)


def _say(message):
  """Writes one line to stderr, unless the terminal or pipe takes nothing."""
  number = _state.stderr
  clear = '\r\x1b[K' if os.isatty(number) else '\r'
  with contextlib.suppress(OSError):
    if select.select([], [number], [], 0.2)[1]:
      os.write(number, f'{clear}{message}\n'.encode())


def _terminal_is_gone():
  if not _state.has_terminal:
    return False
  time.sleep(0.05)  # the signal may come while the terminal is being closed
  return not _terminal_answers()


def _terminal_answers():
  try:
    os.close(os.open('/dev/tty', os.O_RDWR | os.O_NOCTTY))
  except OSError:
    return False
  return True


@contextlib.contextmanager
def unblocked():
  """Context whose new processes get signals as other programs do.

  A signal during the context ends this process at once.
  """
  handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
  mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    signal.signal(signal.SIGINT, handler)
