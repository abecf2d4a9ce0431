"""The processes of --distributed meet before JAX connects them.

With wrong flags, JAX would end by a signal or wait for minutes. So the
processes first meet at the port that JAX's service will have in process 0, the
leader. They exchange lines of JSON: the leader greets, and each process sends
its number. Once all processes have come, the leader lets all of them start, or
sends all of them the error.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import socket
import threading
import time

from lra.core.errors import UserError
from lra.core.terminal import say

GREETING = 'lra --distributed 1'
FINDING_SECONDS = 30  # the leader must answer within this time
GATHERING_SECONDS = 300  # the leader waits so long for the others
_ANSWER_SECONDS = 5  # wait so long for a line that is due
_QUIET_SECONDS = 10  # the leader waits so long before it prints a message
_LONGEST = 10_000  # most bytes of a line


def meet(coordinator: str, processes: int, process: int) -> None:
  """Waits until all processes are there, with flags that fit together.

  Args:
    coordinator: 'host:port' of the leader.
    processes: number of processes.
    process: number of this process, from 0.

  Raises:
    UserError: a flag is wrong, or a process does not come; the message names
      the flag.
  """
  host, port = address(coordinator)
  if process >= processes:
    raise UserError(
        f'--process_id={process} is too large for --num_processes={processes}: '
        f'number the processes from 0 to {processes - 1}.')
  hello = {'process': process, 'processes': processes,
           'host': socket.gethostname(), 'nonce': secrets.token_hex(8)}
  leader = _Leader(port, hello) if process == 0 else None
  try:
    _join(host, port, hello)
  finally:
    if leader:
      leader.close()


def address(coordinator: str) -> tuple[str, int]:
  """Returns host and port of a 'host:port'.

  Raises:
    UserError: the text has another form.
  """
  found = re.fullmatch(r'(\[[\w:.%]+\]|[^\s:/\[\]]+):([0-9]{1,5})', coordinator)
  if not found or not 1 <= int(found[2]) <= 65535:
    raise UserError(
        f'--coordinator={coordinator} is not HOST:PORT: write the host of '
        'process 0 and one of its free ports, 1 to 65535, as in host0:8476.')
  return found[1].strip('[]'), int(found[2])


def _join(host, port, hello):
  """Finds the leader, and returns once it lets this process start."""
  with _found(host, port) as connection, connection.makefile('rb') as lines:
    _try_to_send(connection, hello)
    connection.settimeout(GATHERING_SECONDS + FINDING_SECONDS)
    answer = _read(lines)
  if not isinstance(answer, dict):
    raise UserError(
        f'--coordinator={host}:{port}: process 0 has ended before all '
        'processes were there: start all of them again.')
  if answer.get('error'):
    raise UserError(answer['error'])


def _found(host, port):
  """Returns a connection to the leader, which has greeted."""
  began, told = time.monotonic(), False
  while True:
    try:
      connection = socket.create_connection((host, port), _ANSWER_SECONDS)
      with connection.makefile('rb') as lines:
        if _read(lines) == GREETING:  # the leader sends no more before a reply
          return connection
      connection.close()
      problem = ('another program answers there: start --process_id=0 there, '
                 'or choose another port in all processes')
    except socket.gaierror:
      problem = ('the host has no address here: correct its name in all '
                 'processes')
    except OSError as e:
      problem = (f'no process answers there ({e.strerror or "no answer"}): '
                 'start --process_id=0 there, or correct host and port in all '
                 'processes')
    waited = time.monotonic() - began
    if waited > FINDING_SECONDS:
      raise UserError(f'--coordinator={host}:{port}: {problem}.')
    if waited > _QUIET_SECONDS and not told:
      told = True
      say(f'Waiting for process 0 at {host}:{port}.')
    time.sleep(0.5)


class _Leader:
  """Answers at the port until all processes have come, or there is an error.

  Args:
    port: port of this machine.
    hello: the message of this process, the leader.

  Raises:
    UserError: the port cannot be used.
  """

  def __init__(self, port, hello):
    self._hello, self._members = hello, {}
    self._answer = None  # {} or the error, once it is known
    self._lock = threading.Lock()
    try:
      both = socket.has_dualstack_ipv6()
      self._server = socket.create_server(
          ('', port), family=socket.AF_INET6 if both else socket.AF_INET,
          dualstack_ipv6=both)
    except OSError as e:
      why = ('is in use, by another program or by another process with '
             '--process_id=0' if e.errno == errno.EADDRINUSE
             else f'cannot be used ({os.strerror(e.errno)})')
      raise UserError(
          f'--coordinator: port {port} of this machine {why}: choose another '
          'port in all processes, or end the program that uses it.') from e
    threading.Thread(target=self._accept, daemon=True).start()
    threading.Thread(target=self._watch, daemon=True).start()

  def close(self) -> None:
    """Frees the port."""
    with contextlib.suppress(OSError):  # ends `accept` on Linux
      self._server.shutdown(socket.SHUT_RDWR)
    self._server.close()

  def _accept(self):
    while True:
      try:
        connection, _ = self._server.accept()
      except OSError:
        return
      threading.Thread(
          target=self._talk, args=(connection,), daemon=True).start()

  def _talk(self, connection):
    """Registers the process that connects, until that process ends."""
    with contextlib.suppress(OSError), (
        connection), connection.makefile('rb') as lines:
      connection.settimeout(_ANSWER_SECONDS)
      _send(connection, GREETING)
      hello = _read(lines)
      if not isinstance(hello, dict) or (
          _types(hello) != _types(self._hello)):
        return  # the line is from another program
      self._take(hello, connection)
      connection.settimeout(None)
      lines.read(1)  # returns once the process has ended
      with self._lock:
        process = hello['process']
        if self._members.get(process, (None,))[0] == hello:
          del self._members[process]

  def _take(self, hello, connection):
    with self._lock:
      problem = self._problem(hello)
      if problem:
        self._end({'error': problem})
      if self._answer:  # processes that come late get the answer too
        _try_to_send(connection, self._answer)
        return
      self._members[hello['process']] = hello, connection
      if len(self._members) == self._hello['processes']:
        self.close()  # JAX's service uses the port next
        self._end({})

  def _problem(self, hello):
    """Returns the problem with a process that has come, '' if there is none."""
    process, ours = hello['process'], self._hello
    if hello['processes'] != ours['processes']:
      return (f'--num_processes is {ours["processes"]} for process 0 and '
              f'{hello["processes"]} for process {process}: give all processes '
              'the same.')
    others = [other for other, _ in self._members.values()]
    if process == 0:
      others.append(ours)
    for other in others:
      if other['process'] == process and other['nonce'] != hello['nonce']:
        return (f'--process_id={process} was given to two processes, on '
                f'{other["host"]} and {hello["host"]}: number them from 0 to '
                f'{ours["processes"] - 1}.')
    return ''

  def _end(self, answer):
    """Sends the answer to all waiting processes; the caller holds the lock."""
    if self._answer is None:
      self._answer = answer
      for _, connection in self._members.values():
        _try_to_send(connection, answer)

  def _watch(self):
    """Reports missing processes, and ends the waiting for them."""
    missing = ''
    for wait in (_QUIET_SECONDS, GATHERING_SECONDS - _QUIET_SECONDS):
      time.sleep(wait)
      with self._lock:
        missing = ', '.join(
            str(i) for i in range(self._hello['processes'])
            if i not in self._members)
        if self._answer is not None:
          return
      if wait == _QUIET_SECONDS:
        say(f'Waiting for --process_id {missing} of '
            f'{self._hello["processes"]} processes.')
    with self._lock:
      self._end({'error': (
          f'--process_id {missing} of --num_processes='
          f'{self._hello["processes"]} did not come within '
          f'{GATHERING_SECONDS} seconds: start all processes, with the same '
          '--coordinator.')})


def _types(hello):
  return {name: type(value) for name, value in hello.items()}


def _send(connection, value):
  connection.sendall(json.dumps(value).encode() + b'\n')


def _try_to_send(connection, value):
  with contextlib.suppress(OSError):
    _send(connection, value)


def _read(lines):
  """Returns the value of the next line; None if it is not JSON or missing."""
  try:
    return json.loads(lines.readline(_LONGEST))
  except (OSError, ValueError):
    return None
