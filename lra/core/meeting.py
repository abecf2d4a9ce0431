"""Checks made before JAX connects the processes of --distributed.

If JAX cannot connect, or loses a process later, it writes a C++ stack and
aborts. So C++'s stderr is held back, and the abort becomes one sentence.
"""

import atexit
import contextlib
import ctypes
import errno
import faulthandler
import os
import re
import signal
import socket
import sys
import tempfile

from lra.core import signals, streams
from lra.core.errors import USER_ERROR, UserError

SECONDS = 35  # in which JAX must connect all processes
AGAIN = (': start all of them again; the run resumes from its last '
         'checkpoint.\n')
# Exit code of the command once it is known; whether the processes are
# connected; the real stderr, once C++'s is held back.
state = {'code': None, 'met': False, 'stderr': 2}


def check(coordinator: str, processes: int | None, process: int | None) -> None:
  """Checks address, numbers and, in process 0, the port; None is unknown."""
  found = re.fullmatch(r'(\[[\w:.%]+\]|[^\s:/\[\]]+):([0-9]{1,5})', coordinator)
  if not found or not 1 <= int(found[2]) <= 65535:
    raise UserError(
        f'--coordinator={coordinator} is not HOST:PORT: write the host of '
        'process 0 and one of its free ports, 1 to 65535, as in host0:8476.')
  if None not in (process, processes) and process >= processes:
    raise UserError(
        f'--process_id={process} is too large for --num_processes={processes}: '
        f'number the processes from 0 to {processes - 1}.')
  try:
    socket.getaddrinfo(found[1].strip('[]'), found[2])
    if process == 0:
      both = socket.has_dualstack_ipv6()
      socket.create_server(
          ('', int(found[2])), dualstack_ipv6=both,
          family=socket.AF_INET6 if both else socket.AF_INET).close()
  except socket.gaierror as e:
    raise UserError(f'--coordinator={coordinator}: the host has no address '
                    'here: correct its name in all processes.') from e
  except OSError as e:
    why = ('is in use, by another program or by another process with '
           '--process_id=0' if e.errno == errno.EADDRINUSE
           else f'cannot be used ({os.strerror(e.errno)})')
    raise UserError(
        f'--coordinator: port {found[2]} of this machine {why}: choose another '
        'port in all processes, or end the program that uses it.') from e


def hold() -> None:
  """Holds back C++'s stderr until `show`, and translates aborts."""
  sys.stderr.flush()
  state['stderr'] = os.dup(2)
  with tempfile.TemporaryFile('a+b') as file:
    os.dup2(file.fileno(), 2)
  sys.stderr = streams.writer(state['stderr'], sys.stderr)
  if faulthandler.is_enabled():
    faulthandler.enable(state['stderr'])
  atexit.register(show)
  ctypes.CDLL(None).signal(signal.SIGABRT, _aborted)


def show(text: bytes | None = None) -> None:
  """Writes to the real stderr: by default the text held back so far."""
  if state['stderr'] != 2:
    text = os.pread(2, 10**6, 0) if text is None else text
    with contextlib.suppress(OSError):  # its reader may be gone
      os.ftruncate(2, 0)
      os.write(state['stderr'], text)


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _aborted(number):
  code, stack = state['code'], os.pread(2, 10**6, 0)
  if code is None and stack and not re.search(
      b'distributed service|oordination', stack):
    show()
    ctypes.CDLL(None).signal(number, signal.SIG_DFL)
    return  # another cause: the abort continues
  if code is None:
    code = signals.STOPPED if state['met'] else USER_ERROR
    show(f'error: another process of this run has ended{AGAIN}'.encode()
         if state['met'] else
         b'error: --distributed: the processes did not meet in time, or one of '
         b'them has ended: start all of them at the same time, with the same '
         b'--coordinator and --num_processes, and each --process_id once.\n')
  os._exit(code)
