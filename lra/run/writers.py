"""Writes log points besides metrics.jsonl: `--log=csv,tensorboard,wandb`.

A run that resumes first drops the points in metrics.jsonl that it will log
again. A writer starts with the remaining points and holds exactly these. So
each point is there once after any stop or kill, even if the run began without
the writer.
"""

import contextlib
import csv
import fcntl
import importlib.util
import io
import logging
import os
import pathlib
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lra.core import files, paths
from lra.core.errors import UserError, choose
from lra.core.terminal import say
from lra.schema import identity

_LONGEST = 300  # most characters of an error of another library
Point = Mapping[str, Any]  # `step`, `split` and numbers


class CsvFile:
  """Writes `metrics.csv`: one row per point, with missing numbers empty."""

  def __init__(self, folder: pathlib.Path, config: dict,
               points: Sequence[Point]):
    self._path, self._points = folder / 'metrics.csv', list(points)
    self._write_all()

  def write(self, point: Point) -> None:
    self._points.append(point)
    if point.keys() <= set(self._columns):
      with open(self._path, 'a', encoding='utf-8', newline='') as f:
        self._rows(f).writerow(point)
    else:
      self._write_all()

  def _rows(self, file):
    return csv.DictWriter(file, self._columns, lineterminator='\n')

  def _write_all(self):
    self._columns = list(dict.fromkeys(
        name for p in ({'step': 0, 'split': ''}, *self._points) for name in p))
    text = io.StringIO()
    self._rows(text).writeheader()
    self._rows(text).writerows(self._points)
    files.write_all({self._path: text.getvalue().encode()})

  def close(self) -> None:
    """Does nothing: each point is on disk."""


class TensorBoard:
  """Writes `tensorboard/<split>/`: event files, one TensorBoard run per split.

  Wall times are those of a run that was never stopped.
  """

  def __init__(self, folder: pathlib.Path, config: dict,
               points: Sequence[Point]):
    self._folder, self._files = folder / 'tensorboard', {}
    self._began = (folder / 'config.json').stat().st_mtime
    for path in self._folder.glob('*/events.out.tfevents.*'):
      os.truncate(path, 0)  # an open TensorBoard would miss a deleted file
    for point in points:
      self.write(point)

  def write(self, point: Point) -> None:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    file = self._file(point['split'])
    file.write_event(Event(
        wall_time=self._began + point.get('seconds', 0), step=point['step'],
        summary=Summary(value=[
            Summary.Value(tag=name, simple_value=value)
            for name, value in _numbers(point).items()])))
    file.flush()

  def _file(self, split):
    # Without the library's thread, which an error would end unnoticed.
    if split not in self._files:
      from tensorboardX.event_file_writer import EventsWriter
      from tensorboardX.proto.event_pb2 import Event, SessionLog
      (self._folder / split).mkdir(parents=True, exist_ok=True)
      self._files[split] = EventsWriter(str(self._folder / split / 'events'))
      # An open TensorBoard then forgets the points of earlier files.
      self._files[split].write_event(Event(
          step=0, wall_time=self._began,
          session_log=SessionLog(status=SessionLog.START)))
    return self._files[split]

  def close(self) -> None:
    for file in self._files.values():
      file.close()


class _Tracker:
  """Sends points to a tracker of runs and resumes its run after a stop.

  Points cannot be taken back. So a file, such as `wandb.json`, has the run's id
  and counts each point just before it is sent, and none is sent twice.
  """
  file: str

  def __init__(self, folder: pathlib.Path, config: dict,
               points: Sequence[Point]):
    self._path, self._number = folder / self.file, 0
    self._kept = files.read_json(self._path) or {'id': '', 'points': 0}
    if not isinstance(self._kept, dict) or [
        type(self._kept.get(name)) for name in ('id', 'points')] != [str, int]:
      raise UserError(f'{self._path} is damaged: restore it, or delete it to '
                      'log to a new run.')
    self._begin(folder, config)
    for point in points:
      self.write(point)

  def write(self, point: Point) -> None:
    self._number += 1
    if self._number > self._kept['points']:
      self._kept['points'] = self._number
      files.write_json(self._path, self._kept)
      self._send(point['step'], {
          f'{point["split"]}/{name}': value
          for name, value in _numbers(point).items()})


class WeightsAndBiases(_Tracker):
  """Writes a run of wandb, a separate process.

  A `kill -9` loses the points of the last second or so, not written yet.
  """
  file = 'wandb.json'

  def _begin(self, folder, config):
    import wandb
    self._kept['id'] = self._kept['id'] or secrets.token_hex(4)
    try:
      self._run = wandb.init(
          dir=folder, id=self._kept['id'], resume='allow', config=config,
          reinit='create_new',  # this process may have other wandb runs
          project=os.environ.get('WANDB_PROJECT', 'lra'),
          name=_name(config), group=config['task'],
          settings=wandb.Settings(console='off', silent=True))
    except wandb.Error as e:
      raise UserError(f'wandb cannot start ({_why(e)}): run `wandb login`, or '
                      'set WANDB_MODE=offline.') from e
    offline = f'offline: `wandb sync {self._run.sync_dir}` uploads it'
    say(f'wandb: {offline if self._run.offline else self._run.url}')
    # wandb's own step rises with each point, but a step here has several.
    self._run.define_metric('step')
    self._run.define_metric('*', step_metric='step')

  def _send(self, step, named):
    self._run.log({'step': step, **named}, step=self._number, commit=True)

  def close(self) -> None:
    self._run.finish()


class MLflow(_Tracker):
  """Writes a run of MLflow, by default to mlflow.db in the current folder.

  If the server fails later on, the points that are missing are sent at the end.
  """
  file = 'mlflow.json'

  def _begin(self, folder, config):
    for name in ('mlflow', 'alembic'):
      logging.getLogger(name).setLevel(logging.ERROR)
    # By default, MLflow tries for minutes to reach a server.
    os.environ.setdefault('MLFLOW_HTTP_REQUEST_MAX_RETRIES', '2')
    from mlflow import MlflowClient
    from mlflow.entities import Param
    from mlflow.exceptions import MlflowException
    self._failure, self._waiting = MlflowException, []
    try:
      # Of two processes that make a database at once, one would fail.
      with files.lock_file(pathlib.Path(
          tempfile.gettempdir(), f'lra-mlflow-{os.getuid()}.lock')) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._client = MlflowClient()
        name = os.environ.get('MLFLOW_EXPERIMENT_NAME', 'lra')
        there = self._client.get_experiment_by_name(name)
        experiment = there.experiment_id if there else (
            self._client.create_experiment(name))
      if self._kept['id']:
        self._client.update_run(self._kept['id'], status='RUNNING')
        return
      self._kept['id'] = self._client.create_run(
          experiment, tags={'task': config['task']}, run_name=_name(config),
          ).info.run_id
      files.write_json(self._path, self._kept)
      self._client.log_batch(self._kept['id'], params=[
          Param(name, str(value)) for name, value in identity.flatten(
              config).items()])
    except Exception as e:  # of MLflow, or of its libraries for databases
      raise UserError(
          f'mlflow cannot start ({_why(e)}): set MLFLOW_TRACKING_URI to a '
          'server or database that can be reached, or leave out --log=mlflow.'
      ) from e

  def _send(self, step, named):
    from mlflow.entities import Metric
    now = int(1000 * time.time())
    self._waiting.append([Metric(name, value, now, step)
                          for name, value in named.items()])
    if len(self._waiting) == 1:
      self._flush()

  def _flush(self):
    try:
      while self._waiting:
        self._client.log_batch(self._kept['id'], metrics=self._waiting[0])
        del self._waiting[0]
    except self._failure as e:
      say('mlflow does not answer; the points that are missing are sent at the '
          f'end of the run ({_why(e)}).')

  def close(self) -> None:
    self._flush()
    with contextlib.suppress(self._failure):
      self._client.set_terminated(self._kept['id'])


def _numbers(point):
  return {name: value for name, value in point.items()
          if name != 'step' and isinstance(value, int | float)}


def _name(config):
  return f'{config["model"]["name"]} {identity.run_name(config)}'


def _why(error):
  return ' '.join(str(error).split())[:_LONGEST]


# Each is made of (folder, config, points logged before), and has `write`, which
# raises OSError if there is no room, and `close`. Trackers come last.
WRITERS = {'csv': CsvFile, 'tensorboard': TensorBoard,
           'wandb': WeightsAndBiases, 'mlflow': MLflow}
_LIBRARIES = {
    'tensorboard': 'tensorboardX', 'wandb': 'wandb', 'mlflow': 'mlflow'}


def check(names: Sequence[str]) -> None:
  """Raises UserError if a name is unknown or its library not installed."""
  for name in names:
    if name not in WRITERS:
      raise UserError(
          f'--log={name} is not possible: {choose(name, WRITERS)}')
    library = _LIBRARIES.get(name)
    if library and importlib.util.find_spec(library) is None:
      raise UserError(f'--log={name} needs {library}, which is not installed: '
                      f'{paths.extra(name)}.')


def make(names: Sequence[str], folder: pathlib.Path, config: dict,
         points: Sequence[Point]) -> list:
  """Makes the writers of these names, with the earlier points."""
  check(names)
  made = []
  try:
    # Trackers first: one that refuses to start leaves no new file.
    for name in reversed([known for known in WRITERS if known in names]):
      made.append(WRITERS[name](folder, config, points))
  except BaseException as e:
    for writer in made:
      writer.close()
    if isinstance(e, OSError):
      raise UserError(
          f'--log={name} cannot write to {e.filename or folder} '
          f'({e.strerror}): make room for it, or leave it out.') from e
    raise
  return made
