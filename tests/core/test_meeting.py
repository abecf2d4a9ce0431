"""Tests how the processes of --distributed meet; threads stand for processes.
"""

import concurrent.futures
import contextlib
import json
import socket
import threading
import time

import pytest

from lra.core import meeting
from lra.core.errors import USER_ERROR, UserError
from tests.helpers import commands
from tests.helpers.paths import ROOT
from tests.helpers.processes import free_port


@pytest.fixture(autouse=True)
def soon(monkeypatch):
  """Shortens the time limits."""
  monkeypatch.setattr(meeting, 'FINDING_SECONDS', 2)
  monkeypatch.setattr(meeting, '_ANSWER_SECONDS', 1)


def _meet(port, *processes, host='127.0.0.1'):
  """Returns the error of each process, or '' if it may start.

  Each of `processes` is (its number, number of processes).
  """
  def told(process, count):
    try:
      meeting.meet(f'{host}:{port}', count, process)
    except UserError as e:
      return str(e)
    return ''

  with concurrent.futures.ThreadPoolExecutor(len(processes)) as pool:
    return list(pool.map(told, *zip(*processes, strict=True)))


def test_all_go_on_once_all_are_there_and_the_port_is_free():
  port, began = free_port(), time.monotonic()
  late = threading.Timer(1, _meet, (port, (2, 3)))
  late.start()
  assert _meet(port, (1, 3), (0, 3)) == ['', '']
  assert time.monotonic() - began > 0.9
  late.join()
  with socket.create_server(('', port)):
    pass
  assert _meet(port, (0, 1)) == ['']


@pytest.mark.parametrize('coordinator', [
    'host0', 'host0:', ':8476', 'host0:abc', 'host0:0', 'host0:65536',
    'host0:99999', 'http://host0:8476', 'host 0:8476', '::1:8476', '8476'])
def test_a_coordinator_of_another_form_is_named(coordinator):
  with pytest.raises(UserError, match='--coordinator=.* is not HOST:PORT'):
    meeting.address(coordinator)


def test_an_address_of_ipv6_is_one():
  assert meeting.address('[::1]:8476') == ('::1', 8476)
  assert meeting.address('lra-0.lra:65535') == ('lra-0.lra', 65535)


def test_a_number_that_is_too_large_is_named():
  told, = _meet(free_port(), (2, 2))
  assert '--process_id=2' in told and '--num_processes=2' in told


@pytest.mark.parametrize('processes, flag', [
    ([(0, 3), (1, 3), (1, 3)], '--process_id=1'),
    ([(0, 2), (1, 3)], '--num_processes'),
    ([(0, 3), (1, 2)], '--num_processes')])
def test_flags_that_do_not_fit_are_told_to_all(processes, flag):
  began = time.monotonic()
  for told in _meet(free_port(), *processes):
    assert told.startswith(flag), told
  assert time.monotonic() - began < 60


def test_what_is_wrong_is_told_to_those_who_come_later():
  port = free_port()
  hello = {'process': 0, 'processes': 3, 'host': 'here', 'nonce': 'own'}
  leader = meeting._Leader(port, hello)
  for told in (hello | {'process': 1, 'processes': 2, 'nonce': 'a'},
               hello | {'process': 2, 'nonce': 'b'}, hello):
    with pytest.raises(UserError, match='--num_processes is 3 .* 2'):
      meeting._join('127.0.0.1', port, told)
  leader.close()


def test_a_second_leader_on_this_machine_or_another_is_told():
  """A second process 0 finds its port in use, or the first one at HOST:PORT."""
  port = free_port()
  first = meeting._Leader(port, {
      'process': 0, 'processes': 2, 'host': 'there', 'nonce': 'other'})
  assert 'is in use' in _meet(port, (0, 2))[0]
  with pytest.raises(UserError, match='--process_id=0 .* two .*there'):
    meeting._join('127.0.0.1', port, {
        'process': 0, 'processes': 2, 'host': 'here', 'nonce': 'own'})
  first.close()


def test_a_leader_that_does_not_come_is_missed():
  told, = _meet(free_port(), (1, 2))
  assert '--coordinator=' in told and '--process_id=0' in told


def test_a_process_that_does_not_come_is_named(monkeypatch):
  monkeypatch.setattr(meeting, 'GATHERING_SECONDS', 2)
  monkeypatch.setattr(meeting, '_QUIET_SECONDS', 1)
  for told in _meet(free_port(), (0, 4), (2, 4)):
    assert told.startswith('--process_id 1, 3 of --num_processes=4'), told


def test_a_host_without_an_address_is_named():
  told, = _meet(8476, (1, 2), host='nobody.invalid')
  assert 'nobody.invalid' in told and 'no address' in told


@pytest.mark.parametrize('says', [b'', b'HTTP/1.1 400 Bad Request\r\n\r\n',
                                  b'{"lra": 1}\n', b'\x00\x00\xff' * 9999])
@pytest.mark.parametrize('closes', [True, False])
def test_something_else_at_the_port_is_told(says, closes):
  with socket.create_server(('', 0)) as server:
    def serve():
      with contextlib.suppress(OSError), contextlib.ExitStack() as kept:
        while True:
          connection, _ = server.accept()
          with contextlib.suppress(OSError):
            connection.sendall(says)
          if closes:
            connection.close()
          else:
            kept.callback(connection.close)

    threading.Thread(target=serve, daemon=True).start()
    told, = _meet(server.getsockname()[1], (1, 2))
    server.shutdown(socket.SHUT_RDWR)
  assert 'another program' in told


def test_a_port_that_is_in_use_is_told_to_the_leader():
  with socket.socket() as taken:
    taken.bind(('127.0.0.1', 0))
    taken.listen()
    told, = _meet(taken.getsockname()[1], (0, 2))
  assert 'is in use' in told and '--coordinator' in told


def test_a_command_that_cannot_meet_ends_with_one_sentence(tmp_path):
  """JAX alone would end such a command with SIGSEGV or an IndexError."""
  with socket.create_server(('127.0.0.1', 0)) as taken:
    port = taken.getsockname()[1]
    for coordinator, word in ((f'127.0.0.1:{port}', 'is in use'),
                              ('127.0.0.1', 'is not HOST:PORT')):
      done = commands.run(
          'run_lra', f'--config={ROOT}/configs/simpletron.py:'
          'listops_mini', '--distributed', f'--coordinator={coordinator}',
          '--num_processes=2', '--process_id=0', cwd=tmp_path)
      assert done.returncode == USER_ERROR, done.stderr
      line, = done.stderr.splitlines()
      assert line.startswith('error: --coordinator') and word in line
  assert not list(tmp_path.iterdir())


def test_strangers_and_those_who_leave_disturb_nobody():
  port = free_port()
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    leader = pool.submit(_meet, port, (0, 3))
    hello = {'process': 1, 'processes': 3, 'host': 'h', 'nonce': 'n'}
    for said in (b'', b'GET / HTTP/1.1\r\n\r\n', b'[]\n', b'\xff\n', *(
        json.dumps(hello | {'process': number}).encode() + b'\n'
        for number in ([], '1', 1))):
      connection = meeting._found('127.0.0.1', port)
      with connection:
        connection.sendall(said)
        time.sleep(0.1)
    time.sleep(0.3)
    assert not leader.done()
    assert _meet(port, (1, 3), (2, 3)) == ['', '']
    assert leader.result() == ['']
