"""One run made by several processes, each with its own devices.

If JAX cannot connect, or loses a process later, it writes a C++ stack and
aborts. So C++'s stderr is held back, and the abort becomes one sentence.

All processes make the same calls in the same order. Process 0, the leader, owns
the run directory: it alone locks, logs and publishes, and it sends the other
processes the values they need. A stop signal or a time limit may reach one
process only. So each request to stop is sent through the devices after a batch,
and all processes learn of it after the same batch.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import json
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from lra.core import signals, streams, terminal
from lra.core.errors import USER_ERROR, UserError

# Seconds of silence after which a process counts as dead.
HEARTBEAT_SECONDS = 30
# Seconds that processes wait for one that prepares data or compiles.
MEETING_SECONDS = 24 * 3600
# Seconds in which JAX must connect all processes: that the user starts, or
# that a cluster starts.
START_SECONDS, CLUSTER_SECONDS = 35, 300
_AGAIN = (': start all of them again; the run resumes from its last '
          'checkpoint.\n')
_NOT_MET = (
    'error: --distributed: the processes did not meet in time, or one of them '
    'has ended: start all of them at the same time, with the same '
    '--coordinator and --num_processes, and each --process_id once.\n')
_counter = [0]  # meetings so far
# Exit code of the command once it is known; whether the processes are
# connected; the real stderr, once C++'s is held back.
state = {'code': None, 'met': False, 'stderr': 2}


def begin(coordinator: str | None = None, processes: int | None = None,
          process: int | None = None) -> None:
  """Meets the other processes; must come before anything else that JAX does.

  Without the coordinator (host:port of process 0), the number of processes and
  that of this process, JAX takes them from Slurm, Open MPI, the TPU pod or GKE.
  """
  known = None not in (coordinator, processes, process)
  if coordinator:
    check(coordinator, processes, process)
  hold_stderr()
  import jax
  if os.environ.get('JAX_PLATFORMS') == 'cpu':
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
    _keep_stdout()  # Gloo writes to stdout when processes connect
  try:
    jax.distributed.initialize(
        coordinator, processes, process,
        initialization_timeout=START_SECONDS if known else CLUSTER_SECONDS,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        shutdown_timeout_seconds=HEARTBEAT_SECONDS)
  except Exception as e:  # wrong cluster variables may raise any error
    raise UserError(
        f'--distributed: the processes cannot meet ({" ".join(str(e).split())}'
        '): give --coordinator=HOST:PORT, --num_processes and --process_id, or '
        'start them by Slurm or Open MPI.') from e
  state['met'] = True
  if known:
    _check_counts(processes, process)
  if not is_leader():
    terminal.be_quiet()


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
      socket.create_server(('', int(found[2]))).close()
  except socket.gaierror as e:
    raise UserError(f'--coordinator={coordinator}: the host has no address '
                    'here: correct its name in all processes.') from e
  except OSError as e:
    raise UserError(
        f'--coordinator: port {found[2]} of this machine cannot be used '
        f'({e.strerror}): choose another port in all processes, or end the '
        'program that uses it.') from e


def hold_stderr() -> None:
  """Holds back C++'s stderr until `show_stderr`, and translates aborts."""
  sys.stderr.flush()
  state['stderr'] = os.dup(2)
  with tempfile.TemporaryFile('a+b') as file:
    os.dup2(file.fileno(), 2)
  sys.stderr = streams.writer(state['stderr'], sys.stderr)
  if faulthandler.is_enabled():
    faulthandler.enable(state['stderr'])
  atexit.register(show_stderr)
  ctypes.CDLL(None).signal(signal.SIGABRT, _aborted)


def show_stderr(text: bytes | None = None) -> None:
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
    show_stderr()
    ctypes.CDLL(None).signal(number, signal.SIG_DFL)
    return  # another cause: the abort continues
  if code is None:
    code, text = (signals.STOPPED, 'error: another process of this run has '
                  f'ended{_AGAIN}') if state['met'] else (USER_ERROR, _NOT_MET)
    show_stderr(text.encode())
  os._exit(code)


def _check_counts(count, process):
  """Raises UserError in all processes if their --num_processes differ."""
  counts = _posted(count, range(count if process == 0 else 1))
  for other, theirs in enumerate(counts) if process == 0 else [
      (process, count)]:
    if theirs != counts[0]:
      state['code'] = USER_ERROR
      raise UserError(
          f'--num_processes is {counts[0]} for process 0 and {theirs} for '
          f'process {other}: give all processes the same.')


def _keep_stdout():
  sys.stdout.flush()
  ours = os.dup(1)
  os.dup2(2, 1)
  sys.stdout = os.fdopen(ours, 'w', buffering=1)


def ending(run: Callable[[], int]) -> int:
  """Returns the exit code of `run`, even if other processes are lost then.

  If they are, JAX aborts at the exit, with the code stored here.
  """
  import jax
  try:
    state['code'] = code = run()
  except Exception as e:
    if isinstance(e, jax.errors.JaxRuntimeError) and lost(e):
      abandon(e)
    state['code'] = USER_ERROR if isinstance(e, UserError) else 1
    raise
  return code


def is_multiprocess() -> bool:
  import jax
  return jax.process_count() > 1


def is_leader() -> bool:
  import jax
  return jax.process_index() == 0


def barrier() -> None:
  if is_multiprocess():
    _wait(_next('meeting'))


def broadcast_from_leader(make: Callable[[], Any]) -> Any:
  """Calls `make` in the leader; returns its JSON value, or error, in all."""
  if not is_multiprocess():
    return make()
  said = {}
  if is_leader():
    try:
      said = {'value': make()}
    except UserError as e:
      said = {'error': str(e)}
  said = _posted(said, [0])[0]
  if 'error' in said:
    raise UserError(said['error'])
  return said['value']


def run_or_fail_together(make: Callable[[], Any]) -> Any:
  """Calls `make` in each process, the leader first; all fail if one does."""
  if not is_multiprocess():
    return make()
  made = []
  if is_leader():
    broadcast_from_leader(lambda: made.append(make()))
  else:
    broadcast_from_leader(lambda: None)
    try:
      made.append(make())
    except UserError as e:
      made.append(e)
  failed = isinstance(made[0], UserError)
  if any(all_gather(failed)):
    raise made[0] if failed else UserError(
        'Another process of this run has failed: its message says why.')
  return made[0]


def all_gather(number: float) -> np.ndarray:
  """Returns one number from each process, float64 [processes]."""
  if not is_multiprocess():
    return np.array([number], np.float64)
  import jax
  return np.array(
      _posted(float(number), range(jax.process_count())), np.float64)


def whole(x) -> np.ndarray:
  """Returns an array that may be spread over processes; all must call this."""
  import jax
  if getattr(x, 'is_fully_replicated', True) or x.is_fully_addressable:
    return np.asarray(jax.device_get(x))
  from jax.experimental import multihost_utils
  return np.asarray(multihost_utils.process_allgather(x, tiled=True))


def _posted(value, wanted):
  """Posts a plain JSON value; returns the values of the processes `wanted`.

  The values go through the service at which the processes met: on CPUs a
  transfer through the devices fails after half a minute.
  """
  name, client = _next('post'), _global().client
  client.key_value_set(f'{name}/{_global().process_id}', json.dumps(value))
  _wait(f'{name}_all')
  return [json.loads(client.blocking_key_value_get(
      f'{name}/{process}', 1000 * MEETING_SECONDS)) for process in wanted]


def _wait(name):
  _global().client.wait_at_barrier(name, timeout_in_ms=1000 * MEETING_SECONDS)


def _next(kind):
  """Returns the next name of a meeting, which is the same in each process."""
  _counter[0] += 1
  return f'lra_{kind}_{_counter[0]}'


def _global():
  # Orbax and Flax use this state too: JAX has no public name for it.
  from jax._src.distributed import global_state
  return global_state


class SharedStop:
  """A `terminal.StopRequest` that acts in all processes of a run alike.

  A process sends its `own` requests with its next batch (`ask`). They take
  effect in all processes once these have read the answer (`hear`).
  """

  def __init__(self, own, send):
    self._own, self._send = own, send
    self.reason = ''  # to stop, once it has reached all processes
    self._save = self._wanted = self._asked = False

  def checkpoint(self, due: bool) -> bool:
    """Returns whether a checkpoint is due in all, or `due` by this clock."""
    heard, self._save = self._save, False
    # If a request has arrived, the checkpoint is made now. It is still due by
    # the clock, which must not cause another checkpoint.
    wanted = self._own.checkpoint(due and is_leader() and not heard)
    self._wanted = self._wanted or (wanted and not self._asked)
    return heard

  def ask(self, after):
    """Sends the own requests after a batch; `hear` takes the answer.
    """
    self._asked = self._asked or self._wanted
    wishes = np.array([bool(self._own.reason), self._wanted], np.int32)
    self._wanted = False
    return self._send(wishes, after)

  def hear(self, answer) -> None:
    """Stores an answer, int32 [2]: does any process ask to stop, to save?"""
    stop, save = np.asarray(answer)
    if stop:
      self.reason = self._own.reason or 'another process'
    if save:
      self._save, self._asked = True, False


def lost(error: Exception) -> bool:
  """Returns whether a device's error means that another process is lost."""
  words = ('gloo', 'nccl', 'unavailable', 'deadline', 'timeout', 'timed out',
           'connection', 'heartbeat', 'peer')
  return any(word in str(error).lower() for word in words)


def abandon(error: Exception) -> None:
  """Ends this process at once, because another one cannot be reached."""
  why = str(error).split('\n', 1)[0][:300]
  show_stderr(b'')  # drops the text held back
  print('error: another process of this run has ended '
        f'({why}){_AGAIN}', file=sys.stderr, end='', flush=True)
  leave(signals.STOPPED)


def leave(code: int) -> None:
  """Ends this process at once; the usual exit would wait for the others."""
  sys.stdout.flush()
  show_stderr()
  os._exit(code)
