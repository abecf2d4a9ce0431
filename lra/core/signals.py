"""SIGINT, SIGTERM and SIGHUP of a command, from its first moment on.

The signals are blocked, and a thread waits for them. It hears them even while
the main thread compiles, sets `reason` and prints the effect. The process ends
at once, since no work would be lost; or work within `later` ends when it sees
the `reason`; or `Stop` breaks off the work within `interrupting`. These
contexts act on the main thread; other threads look at `reason`.

A second Ctrl-C ends the process. A closed terminal asks for a checkpoint only.
"""

import contextlib
import functools
import os
import select
import signal
import sys
import threading
import time

STOPPED = 75  # exit code of an early stop: the same command resumes
INTERRUPTED = 130  # exit code after a second Ctrl-C
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE, _LATER, _INTERRUPT = range(3)


class Stop(KeyboardInterrupt):  # noqa: N818
  """A signal broke off the work within `interrupting`."""


class _State:
  """State that the listening thread and the main thread share."""
  lock = threading.Lock()
  effects = [(_AT_ONCE, '')]  # of nested contexts: effect, end of the message
  listening, has_terminal = False, False
  reason, hang_ups, child = '', 0, None


def listen() -> None:
  """Begins to listen, except to ignored signals; call it before threads."""
  heard = [s for s in _SIGNALS if signal.getsignal(s) != signal.SIG_IGN]
  signal.pthread_sigmask(signal.SIG_BLOCK, heard)
  signal.signal(signal.SIGUSR1, lambda *_: _act([_INTERRUPT]))
  sys.unraisablehook = functools.partial(_unraisable, sys.unraisablehook)
  _State.has_terminal, _State.listening = _terminal_answers(), True
  threading.Thread(target=_wait, args=(heard,), daemon=True).start()


def listening() -> bool:
  return _State.listening


def reason() -> str:
  return _State.reason


def hang_ups() -> int:
  """Returns how often the terminal was closed."""
  return _State.hang_ups


@contextlib.contextmanager
def _within(effect, when='in a moment', acts_after=False):
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  before = _State.reason
  with _State.lock:
    _State.effects.append((effect, when))
  try:
    _act()
    yield
    _act()
  finally:
    with _State.lock:
      _State.effects.pop()
  if acts_after and not before:
    _act()


# later(when): `when` ends the message that begins with 'will stop'.
later = functools.partial(_within, _LATER)
interrupting = functools.partial(_within, _INTERRUPT)
at_once = functools.partial(_within, _AT_ONCE)  # inside `later`
# Short work: a signal that comes meanwhile acts after it.
unbroken = functools.partial(_within, _LATER, acts_after=True)


@contextlib.contextmanager
def passed_on_to(child):
  """Context in which signals also reach a `subprocess.Popen` or similar object.

  SIGINT is passed on as SIGTERM, since a terminal sends it to the child as
  well.
  """
  with _State.lock:
    _State.child = child
    if _State.reason:
      child.send_signal(signal.SIGTERM)
  try:
    yield
  finally:
    with _State.lock:
      _State.child = None


@contextlib.contextmanager
def unblocked():
  """Context whose new processes get signals; one ends this process too."""
  handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
  mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    signal.signal(signal.SIGINT, handler)


def _act(allowed=(_AT_ONCE, _INTERRUPT)):
  effect, _ = _State.effects[-1]
  if _State.reason and effect in allowed:
    if effect == _INTERRUPT:
      raise Stop
    os._exit(STOPPED)


def _interrupt_main():
  signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


def _unraisable(hook, unraisable):
  if unraisable.exc_type is Stop:  # raised in the garbage collector
    threading.Timer(0.1, _interrupt_main).start()
  else:
    hook(unraisable)


def _wait(heard):
  """Waits for the signals, one after another; runs as a thread."""
  while True:
    number = signal.sigwait(heard)
    with _State.lock:
      if number == signal.SIGHUP and _terminal_is_gone():
        _State.hang_ups += 1
        _pass_on(number)
      elif not _State.reason:
        _State.reason = signal.Signals(number).name
        _first(number, *_State.effects[-1])
      elif number == signal.SIGINT:
        _end(INTERRUPTED, 'Stopped at once.')


def _first(number, effect, when):
  if effect == _AT_ONCE:
    _end(STOPPED,
         f'{_State.reason}: stopped; repeat the command to finish its work.')
  _say(f'{_State.reason}: will stop {when}; Ctrl-C stops at once.')
  _pass_on(number)
  if effect == _INTERRUPT:
    _interrupt_main()


def _pass_on(number):
  if _State.child is not None:
    _State.child.send_signal(
        signal.SIGTERM if number == signal.SIGINT else number)


def _end(code, message):
  _say(message)
  if _State.child is not None:
    _State.child.kill()
  os._exit(code)


def _say(message):
  """Writes one line to stderr, unless the terminal or pipe takes nothing."""
  with contextlib.suppress(OSError):
    number = sys.stderr.fileno()
    clear = '\r\x1b[K' if os.isatty(number) else '\r'
    if select.select([], [number], [], 0.2)[1]:
      os.write(number, f'{clear}{message}\n'.encode())


def _terminal_is_gone():
  if _State.has_terminal:
    time.sleep(0.05)  # the signal may come while the terminal is being closed
  return _State.has_terminal and not _terminal_answers()


def _terminal_answers():
  with contextlib.suppress(OSError):
    os.close(os.open('/dev/tty', os.O_RDWR | os.O_NOCTTY))
    return True
  return False
