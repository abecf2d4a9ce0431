"""Tests of runs made by several processes on this machine.

The processes exchange arrays through Gloo, JAX's CPU backend for collectives.
"""

import concurrent.futures
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorstore

from lra import data_prep
from lra.core import files
from lra.many import execute
from tests.helpers import tiny
from tests.helpers.paths import ROOT
from tests.helpers.processes import free_port

DEVICES = 4
STEPS = 60
pytestmark = pytest.mark.full


def _start(folder, data_dir, count, task='listops_mini', first='', **changes):
  """Starts the processes of one run; they share `DEVICES` devices.

  Args:
    folder: run directory, or a list with one for each process.
    data_dir: data folder, or a list with one for each process.
    count: number of processes.
    task: name of the task.
    first: Python code that each process executes before the run.
    **changes: config fields to set.
  """
  folders, data_dirs = (x if isinstance(x, list) else [x] * count
                        for x in (folder, data_dir))
  meet = f'--coordinator=127.0.0.1:{free_port()}', f'--num_processes={count}'
  return [subprocess.Popen(
      [sys.executable, '-c', f'{first}\nimport run_lra\nrun_lra.run()',
       '--norecord',
       f'--workdir={folders[i]}',
       f'--compile_cache={folders[0].parents[1] / "xla"}',
       f'--config={ROOT}/configs/simpletron.py:{task}',
       *(['--distributed', *meet, f'--process_id={i}'] if count > 1 else []),
       *tiny.flags(**{
           'data_dir': data_dirs[i], 'train.batch_size': 8,
           'train.eval_batch_size': 200, 'train.steps': STEPS,
           'train.eval_every': 20, 'train.log_every': 5,
           'train.checkpoint_minutes': 0.03, **changes})],
      text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={
          **os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT),
          'XLA_FLAGS': f'{os.environ.get("XLA_FLAGS", "")} '
                       '--xla_force_host_platform_device_count='
                       f'{DEVICES // count}'}) for i in range(count)]


def _end(processes):
  """Returns (exit code, stdout, stderr) of each process once all have ended."""
  try:
    # Read all pipes at once: a process with a full pipe would block the others.
    with concurrent.futures.ThreadPoolExecutor(len(processes)) as pool:
      said = list(pool.map(lambda p: p.communicate(timeout=300), processes))
  finally:
    for process in processes:
      process.kill()
  return [(process.returncode, out, errors)
          for process, (out, errors) in zip(processes, said, strict=True)]


def _ends_well(processes):
  ended = _end(processes)
  if any(code for code, _, _ in ended):
    pytest.fail(_said(ended))


def _said(ended):
  """Formats the exit code and the end of stderr of each process."""
  return '\n'.join(f'exit code {code}: {errors[-6000:]}'
                   for code, _, errors in ended)


def _metrics(folder):
  return [json.loads(line)
          for line in (folder / 'metrics.jsonl').read_text().splitlines()]


def _alive(processes):
  """Fails if a process has ended, and shows the stderr of all."""
  if any(p.poll() is not None for p in processes):
    pytest.fail(_said(_end(processes)))


def _wait_for_step(folder, processes, step):
  while True:
    _alive(processes)
    if (folder / 'metrics.jsonl').exists() and any(
        point['step'] >= step for point in _metrics(folder)):
      return
    time.sleep(0.05)


def _same(folder, whole):
  """Checks that the runs in `folder` and `whole` agree, but for rounding.

  Each number of processes adds up the gradients in its own order.
  """
  ours, theirs = _metrics(folder), _metrics(whole)
  assert [(p['split'], p['step']) for p in ours] == [
      (p['split'], p['step']) for p in theirs]
  for a, b in zip(ours, theirs, strict=True):
    np.testing.assert_allclose(a['loss'], b['loss'], rtol=1e-4)
  a, b = (files.read_json(f / 'result.json') for f in (folder, whole))
  assert (a['status'], a['best_step'], a['num_devices']) == (
      b['status'], b['best_step'], b['num_devices'])
  assert abs(a['test']['accuracy'] - b['test']['accuracy']) < 0.01
  return a


@pytest.fixture(scope='module')
def whole(mini_data, tmp_path_factory):
  folder = tmp_path_factory.mktemp('whole') / 'run'
  _ends_well(_start(folder, mini_data, 1))
  return folder


def test_a_stop_of_one_is_a_stop_of_all_and_another_mesh_goes_on(
    mini_data, tmp_path, whole):
  folder = tmp_path / 'run'
  # Each process holds one half of the parameters and optimizer state.
  processes = _start(folder, mini_data, 2, **{'mesh.fsdp': 4})
  _wait_for_step(folder, processes, 15)
  processes[1].send_signal(signal.SIGTERM)
  for code, _, errors in _end(processes):
    assert code == execute.EXIT['stopped'], errors
  stopped = files.read_json(folder / 'result.json')
  assert stopped['status'] == 'stopped' and 15 <= stopped['steps'] < STEPS
  (code, out, errors), *others = _end(
      _start(folder, mini_data, 4, **{'mesh.sequence': 2}))
  assert code == 0 and out.startswith(f'ok: {folder}'), (errors, others)
  for code, out, errors in others:
    assert code == 0 and not out and 'step' not in errors, errors
  assert _same(folder, whole)['num_processes'] == 4


# Delays the first process, which completes each checkpoint, by a second.
_SLOW = """
import sys, time
from orbax.checkpoint import checkpoint_manager
end = checkpoint_manager.CheckpointManager._finalize_checkpoint
def late(*args):
  time.sleep('--process_id=0' in sys.argv)
  return end(*args)
checkpoint_manager.CheckpointManager._finalize_checkpoint = late
"""


def test_slow_storage_is_waited_for(mini_data, tmp_path):
  folder = tmp_path / 'run'
  # At each validation, the previous checkpoint is still being written.
  _ends_well(_start(folder, mini_data, 2, first=_SLOW, **{
      'train.steps': 5, 'train.eval_every': 1, 'train.log_every': 1,
      'optim.schedule': 'constant', 'train.warmup_steps': 0}))
  assert files.read_json(folder / 'result.json')['best_step'] > 1


def _damage_newest(folder):
  """Damages the newer of two checkpoints; returns the paths, older first."""
  states = sorted((folder / 'checkpoints' / 'last').iterdir(),
                  key=lambda path: int(path.name))
  assert len(states) == 2
  arrays = tensorstore.KvStore.open({
      'driver': 'ocdbt', 'base': f'file://{states[-1]}/state/'}).result()
  name = 'params.encoder.block_0.mlp.up.kernel/0.3'
  assert arrays.read(name).result().value
  arrays.write(name, b'spoiled').result()
  return states


def test_what_one_cannot_read_is_damaged_for_all(mini_data, tmp_path):
  folder = tmp_path / 'run'
  # Wide enough that `fsdp` splits the MLP's arrays between devices.
  changes = {'mesh.fsdp': 4, 'train.steps': 20, 'encoder.mlp_width': 64}
  started = _start(folder, mini_data, 2, **changes)
  _wait_for_step(folder, started, 15)
  started[0].send_signal(signal.SIGTERM)
  for code, _, errors in _end(started):
    assert code == execute.EXIT['stopped'], errors
  before, newest = _damage_newest(folder)
  ended = _end(_start(folder, mini_data, 2, **changes))
  for code, _, errors in ended:
    assert code == 0, errors
    assert 'Exception ignored' not in errors
  said = ended[0][2]
  assert f'{newest}/state is damaged' in said
  assert 'another process cannot read it' in said
  assert f'from step {before.name}' in said
  assert files.read_json(folder / 'result.json')['steps'] == 20


def test_the_end_of_one_is_the_end_of_all_within_a_minute(
    mini_data, tmp_path, whole):
  folder = tmp_path / 'run'

  def begun(processes):
    while not (folder / 'env.json').exists():
      _alive(processes)
      time.sleep(0.01)

  def at(step):
    return functools.partial(_wait_for_step, folder, step=step)

  for victim, wait in ((1, begun), (0, at(10)), (1, at(35))):
    processes = _start(folder, mini_data, 2)
    wait(processes=processes)
    processes[victim].kill()
    killed = time.monotonic()
    code, _, errors = _end(processes)[1 - victim]
    assert time.monotonic() - killed < 60
    assert code == execute.EXIT['stopped'], errors
    assert 'another process of this run has ended' in errors
    assert 'Traceback' not in errors and '@  ' not in errors  # no C++ stack
  _ends_well(_start(folder, mini_data, 2))
  _same(folder, whole)


def test_all_have_one_folder_and_the_same_data(mini_data, tmp_path):
  source = ROOT / 'tests' / 'fixtures' / 'listops'
  for name, left_out in (('one', 0), ('two', 1)):
    shutil.copytree(source, tmp_path / name)
    lines = (source / 'basic_train.tsv').read_text('utf-8').splitlines(True)
    (tmp_path / name / 'basic_train.tsv').write_text(
        ''.join(lines[:len(lines) - left_out]), 'utf-8')
    data_prep.prepare('listops', tmp_path / f'{name}_data', tmp_path / name)
  folder, data = tmp_path / 'run', [
      tmp_path / 'one_data', tmp_path / 'two_data']
  for folders, data_dirs, words in (
      ([folder, tmp_path / 'elsewhere'], data[0], '--workdir'),
      (folder, data, 'listops: this process')):
    (first, _, leader), (second, _, other) = _end(
        _start(folders, data_dirs, 2, 'listops'))
    assert (first, second) == (2, 2), leader + other
    assert 'Another process of this run has failed' in leader
    assert words in other and 'Traceback' not in leader + other
    assert not list(tmp_path.glob('*/config.json'))
