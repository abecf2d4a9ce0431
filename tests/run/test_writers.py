"""Reads logs written by --log with their own tools, after stops and kills."""

import csv
import importlib.util
import itertools
import json
import struct
import subprocess
import sys
import time
import types

import pytest

from lra.core.errors import UserError
from lra.run import rundir
from tests.helpers.paths import ROOT

CONFIG = {'seed': 0, 'task': 'listops_mini', 'data_dir': '',
          'model': {'name': 'simpletron'}, 'train': {'steps': 6}}


def _needs(name):
  library = _READERS[name][1]
  slow = [pytest.mark.full] if name in _TRACKERS else []
  return pytest.param(name, marks=[*slow, pytest.mark.skipif(
      importlib.util.find_spec(library) is None,
      reason=f'{library} is not installed')])


def _logged(folder):
  """Returns {(split, step, name): value} of metrics.jsonl; keys are unique."""
  return _once(
      (point['split'], point['step'], name, value)
      for point in map(json.loads, (
          folder / 'metrics.jsonl').read_text().splitlines())
      for name, value in point.items() if name not in ('split', 'step'))


def _once(found):
  values = {}
  for split, step, name, value in found:
    assert (split, step, name) not in values, 'a value is logged twice'
    values[split, step, name] = value
  return values


def _of_csv(folder):
  with open(folder / 'metrics.csv', newline='') as f:
    return _once(
        (row['split'], int(row['step']), name, float(value))
        for row in csv.DictReader(f) for name, value in row.items()
        if value and name not in ('split', 'step'))


def _of_tensorboard(folder):
  found = {}
  for path in (folder / 'tensorboard').iterdir():
    full = [file for file in path.iterdir() if file.stat().st_size]
    assert len(full) == 1, 'only one event file may have content'
    found |= _shown(_tensorboard(path), path.name)
  return found


def _tensorboard(folder):
  """Returns TensorBoard's reader of a folder."""
  from tensorboard.backend.event_processing import event_accumulator
  return event_accumulator.EventAccumulator(
      str(folder), size_guidance={'scalars': 0})


def _shown(events, split):
  events.Reload()
  return _once(
      (split, event.step, name, event.value)
      for name in events.Tags()['scalars'] for event in events.Scalars(name))


def _of_wandb(folder):
  """Returns the histories in all wandb files of the run."""
  found, ids = [], set()
  for path in folder.glob('wandb/offline-run-*/*.wandb'):
    ids.add(path.stem)
    for record in _wandb_records(path):
      if record.WhichOneof('record_type') == 'history':
        row = {item.key or item.nested_key[0]: json.loads(item.value_json)
               for item in record.history.item}
        found += [(*name.split('/'), row['step'], value)
                  for name, value in row.items() if '/' in name]
  assert len(ids) == 1
  return _once((split, step, name, value)
               for split, name, step, value in found)


def _wandb_records(path):
  """Waits until wandb has written the last record; returns all records."""
  from wandb.proto.wandb_internal_pb2 import Record
  for _ in range(600):
    records = [Record.FromString(data) for data in _leveldb(path.read_bytes())]
    if any(r.WhichOneof('record_type') == 'exit' for r in records):
      return records
    time.sleep(0.1)
  raise AssertionError(f'{path} has no exit record after a minute')


def _leveldb(data):
  """Yields the records of a LevelDB log that follows wandb's seven bytes.

  The log has blocks of 32 KiB. They hold pieces of records: checksum (4 bytes),
  length (2), type (1) and content. Types 1 to 4 are a whole record, and the
  first, a middle and the last piece of one.
  """
  at, record = 7, b''
  while at + 7 <= len(data):
    if 2**15 - at % 2**15 < 7:  # the block has no room for another piece
      at += 2**15 - at % 2**15
      continue
    length, kind = struct.unpack('<4xHB', data[at:at + 7])
    record += data[at + 7:at + 7 + length]
    at += 7 + length
    if kind in (1, 4):
      yield record
      record = b''


def _of_mlflow(folder):
  """Returns the metrics of the run in MLflow's database."""
  from mlflow import MlflowClient
  client = MlflowClient()
  run = client.get_run(json.loads((folder / 'mlflow.json').read_text())['id'])
  assert run.info.status == 'FINISHED'
  return _once(
      (*name.split('/'), point.step, point.value) for name in run.data.metrics
      for point in client.get_metric_history(run.info.run_id, name))


def _in_order(read):
  return lambda folder: {(split, step, name): value for
                         (split, name, step), value in read(folder).items()}


_TRACKERS = ('wandb', 'mlflow')  # wandb starts a service; MLflow imports much
_READERS = {'csv': (_of_csv, 'csv'),
            'tensorboard': (_of_tensorboard, 'tensorboard'),
            'wandb': (_of_wandb, 'wandb'),
            'mlflow': (_in_order(_of_mlflow), 'mlflow')}


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path_factory):
  monkeypatch.setenv('WANDB_MODE', 'offline')
  folder = tmp_path_factory.mktemp('mlflow')
  monkeypatch.setenv('MLFLOW_TRACKING_URI', f'sqlite:///{folder}/mlflow.db')
  for name in ('WANDB_CONFIG_DIR', 'WANDB_CACHE_DIR', 'WANDB_DATA_DIR'):
    monkeypatch.setenv(name, str(tmp_path_factory.mktemp('wandb')))


@pytest.fixture(autouse=True)
def _another_second(monkeypatch):
  """Gives each event file its own name, which contains a time in seconds."""
  if importlib.util.find_spec('tensorboardX'):
    from tensorboardX import event_file_writer
    seconds = itertools.count(1_000_000_000)
    monkeypatch.setattr(event_file_writer, 'time', types.SimpleNamespace(
        time=lambda: next(seconds)))


def _opened(folder, *names):
  made = rundir.RunDirectory(folder, CONFIG)
  made.log_to(names)
  return made


def _log(made, *steps, split='train', **numbers):
  for step in steps:
    made.log(step=step, split=split, loss=1 / (1 + step), seconds=0.5 * step,
             **({'learning_rate': 0.1} if split == 'train' else numbers))


@pytest.mark.parametrize('name', [_needs(name) for name in _READERS])
def test_each_point_is_there_once_after_stops(name, tmp_path):
  """Each point is logged once after kills at steps 6 and 5.

  The run resumes from step 4 without the writer, then from step 5 with it. Both
  times, points of validations after step 2 are removed.
  """
  made = _opened(tmp_path, name)
  _log(made, 1, 2, 3, 4)
  _log(made, 4, split='val', accuracy=0.25)
  _log(made, 5, 6)
  _log(made, 6, split='test', accuracy=0.5)
  made.close()
  made = _opened(tmp_path)
  made.rewind(4, validated_step=2)
  _log(made, 5)
  made.close()
  made = rundir.RunDirectory(tmp_path, CONFIG)
  made.rewind(5, validated_step=2)
  made.log_to([name])
  _log(made, 5, split='val', accuracy=0.25)
  _log(made, 6)
  _log(made, 6, split='test', accuracy=0.5, other=3)
  made.close()
  found, logged = _READERS[name][0](tmp_path), _logged(tmp_path)
  if name in _TRACKERS:  # they keep undone points
    for key in [k for k in found if k not in logged]:
      assert key[:2] == ('val', 4)
      del found[key]
    logged = {key: value for key, value in logged.items()
              if key[:2] != ('val', 5) and key[2] != 'other'}
  assert found == pytest.approx(logged, rel=1e-6)


@pytest.mark.skipif(importlib.util.find_spec('tensorboardX') is None,
                    reason='tensorboardX is not installed')
def test_a_writer_that_refuses_leaves_no_file_of_another(tmp_path):
  (tmp_path / 'tensorboard').touch()  # in the place of its folder
  made = _opened(tmp_path)
  _log(made, 1)
  with pytest.raises(UserError, match='--log=tensorboard cannot write to'):
    made.log_to(['csv', 'tensorboard'])
  assert not (tmp_path / 'metrics.csv').exists()


_BEGIN = """
import pathlib, sys
from lra.run import writers
writers.MLflow(pathlib.Path(sys.argv[1]), {'task': 't', 'seed': 0,
                                           'model': {'name': 'm'}}, []).close()
"""


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec('mlflow') is None,
                    reason='mlflow is not installed')
def test_runs_that_begin_at_once_share_a_new_database(tmp_path):
  def begin(name):
    (tmp_path / name).mkdir()
    return subprocess.Popen(
        [sys.executable, '-c', _BEGIN, tmp_path / name], cwd=ROOT,
        stderr=subprocess.PIPE, text=True)

  for process in [begin(str(i)) for i in range(3)]:
    _, errors = process.communicate()
    assert process.returncode == 0, errors
  for i in range(3):
    assert _of_mlflow(tmp_path / str(i)) == {}


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec('mlflow') is None,
                    reason='mlflow is not installed')
def test_a_database_that_mlflow_cannot_read_is_one_sentence(
    tmp_path, monkeypatch):
  (tmp_path / 'x.db').write_text('no database' * 1000)
  monkeypatch.setenv('MLFLOW_TRACKING_URI', f'sqlite:///{tmp_path}/x.db')
  with pytest.raises(UserError, match='mlflow cannot start .*not a database'):
    _opened(tmp_path / 'run', 'mlflow')


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec('mlflow') is None,
                    reason='mlflow is not installed')
def test_what_mlflow_does_not_take_is_sent_at_the_end(tmp_path, monkeypatch):
  from mlflow import MlflowClient, exceptions
  made = _opened(tmp_path, 'mlflow')

  def refuse(*_, **__):
    raise exceptions.MlflowException('gone')

  with monkeypatch.context() as patch:
    patch.setattr(MlflowClient, 'log_batch', refuse)
    _log(made, 1, 2)
  _log(made, 3)
  made.close()
  assert _READERS['mlflow'][0](tmp_path) == _logged(tmp_path)
  monkeypatch.setattr(MlflowClient, '__init__', refuse)
  with pytest.raises(UserError, match='mlflow cannot start .gone'):
    _opened(tmp_path, 'mlflow')
