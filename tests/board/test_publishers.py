"""Tests 64 processes that publish at once: no row is lost, none waits long.

Two of the processes are stopped on purpose; the others race.
"""

import copy
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from lra.board import publish, render, site
from lra.schema import result
from tests.helpers.paths import ROOT

RUN = json.loads(
    (pathlib.Path(__file__).parent / 'data' / 'result.json').read_text())
FIRST = range(40)
SECOND = range(36, 60)  # four of these seeds are in FIRST, too

# Forks a process for each seed, which publishes its run, and prints their exit
# codes. The parent imports everything first and has only one thread. The first
# two processes that read the records stop before they write the page: the first
# forever, the second until the file `go` exists.
_PUBLISHERS = """
import copy, json, os, pathlib, sys, time
sys.modules['pyarrow'] = None  # it would start a thread
from lra.schema import result
from lra.board import charts, data, frame, publish, render
folder, seeds = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
run = json.loads((folder / 'run.json').read_text())
load = frame.load

def stop(*folders):
  made = load(*folders)
  for name in ('first', 'second'):
    if not (folder / name).exists():  # under the lock
      (folder / 'tmp').write_text(str(os.getpid()))
      (folder / 'tmp').rename(folder / name)
      while not (folder / 'go').exists() or name == 'first':
        time.sleep(0.01)
      break
  return made

frame.load = stop
assert len(os.listdir('/proc/self/task')) == 1
children = {}
for seed in seeds:
  child = os.fork()
  if not child:
    fields = copy.deepcopy(run)
    fields['seed'] = fields['config']['seed'] = seed
    fields['test']['loss'] += seed / 100
    publish.publish(result.validate(fields), publish.Place(
        folder / 'results', folder / 'page.md'))
    sys.stdout.flush()
    os._exit(0)
  children[child] = seed
ended = {children[child]: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
         for child in children}
print(json.dumps(ended))
"""


def _start(folder, seeds):
  with open(folder / f'said{seeds[0]}', 'w') as said:
    return subprocess.Popen(
        [sys.executable, '-c', _PUBLISHERS, str(folder), json.dumps([*seeds])],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=said,
        start_new_session=True,
        env={**os.environ, 'OPENBLAS_NUM_THREADS': '1'})


def _until(found, processes, place):
  """Waits until `found()`; asserts that nobody writes the page before that."""
  while not found():
    assert all(process.poll() is None for process in processes)
    assert not place.page.exists()
    time.sleep(0.05)


def _waiting(folder):
  """Counts the processes that wait for the lock of the page."""
  return sum(path.read_text().count(f'waiting for {folder}/results/'
                                    f'{publish.LOCK}.\n')
             for path in folder.glob('said*'))


def _run(seed):
  fields = copy.deepcopy(RUN)
  fields['seed'] = fields['config']['seed'] = seed
  fields['test']['loss'] += seed / 100  # else it counts as a copy
  return result.validate(fields)


@pytest.mark.full
def test_sixty_four_publishers_and_one_is_killed(tmp_path):
  (tmp_path / 'run.json').write_text(json.dumps(RUN))
  place = publish.Place(tmp_path / 'results', tmp_path / 'page.md')
  processes = [_start(tmp_path, FIRST)]
  try:
    # The process with the lock may read the records only after the others
    # wait for it.
    _until(lambda: (tmp_path / 'first').exists() and
           _waiting(tmp_path) == len(FIRST) - 1, processes, place)
    os.kill(int((tmp_path / 'first').read_text()), signal.SIGKILL)
    _until((tmp_path / 'second').exists, processes, place)
    processes.append(_start(tmp_path, SECOND))
    # The process that made `second` has read the records without these.
    everyone = len(FIRST) + len(SECOND)
    _until(lambda: _waiting(tmp_path) == everyone - 1, processes, place)
    (tmp_path / 'go').touch()
    said = [process.communicate()[0] for process in processes]
  finally:
    for process in processes:
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
  ends = [json.loads(text.splitlines()[-1]) for text in said]
  assert [sorted(end.values()) for end in ends] == [
      [-signal.SIGKILL] + [0] * (len(FIRST) - 1), [0] * len(SECOND)]
  records = {path.relative_to(place.results / 'runs'): result.read(path)
             for path in (place.results / 'runs').rglob('*.json')}
  wanted = [_run(seed) for seed in {*FIRST, *SECOND}]
  assert records == {run.record_path: run for run in wanted}
  page = (place.details / 'text_mini.md').read_text('utf-8')
  assert '| 1 | transformer | 65.0 | 58.2 to 71.3 \\* | +15.0 | 60 |' in page
  again = render.markdown(site.load(place))
  assert page == again[place.details / 'text_mini.md']
  assert all(publish.done(run, place) for run in wanted)
  # One more page serves all that waited, and no temporary file is left.
  assert ''.join(said).count('wrote ') == 2
  assert {path.name for path in place.results.iterdir()} == {
      'runs', 'figures', publish.LOCK}
  assert not list(place.results.rglob('.tmp-*'))
