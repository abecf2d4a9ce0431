"""Manages a run directory: config, environment, metrics, result; all atomic."""

import contextlib
import fcntl
import json
import os
import pathlib
import time
from collections.abc import Mapping, Sequence

from lra.core import files
from lra.core.errors import UserError
from lra.core.files import read_json, write_json
from lra.core.terminal import say
from lra.run import writers
from lra.schema import identity, result
from lra.schema.result import Result

# Another machine may see a new file only after so many seconds.
APPEARS_SECONDS = 5


def check_config(folder: pathlib.Path, config: dict) -> None:
  """Raises UserError if `folder` belongs to a run with another config."""
  path = folder / 'config.json'
  theirs = read_json(path)
  if theirs is None and not path.exists():
    return
  if not identity.is_config(theirs):
    raise UserError(
        f'{path} is not the config of a run: restore it, or delete it if the '
        'run has this config.')
  differ = identity.differences(config, theirs)
  if differ:
    raise UserError(
        f'{folder} belongs to a run with another config (it differs '
        f'in {", ".join(differ)}): choose another --workdir.')


def _check_links(folder):
  """Raises UserError if writing in a run directory would write elsewhere."""
  for path in sorted(folder.iterdir()):
    if path.is_symlink() and not path.is_dir():
      raise UserError(
          f'{path} is a link, and the run would write to its target: replace '
          'it with the file itself, then repeat the command.')


def environment(folder: pathlib.Path) -> dict:
  """Returns env.json, which describes a run's machine and data; {} if missing.
  """
  path = folder / 'env.json'
  value = read_json(path)
  if value is None and not path.exists():
    return {}
  if not isinstance(value, dict) or (
      value.get('dtype') not in ('float32', 'bfloat16')) or (
          not isinstance(value.get('data_fingerprint'), str)):
    raise UserError(
        f'{path} lacks a valid dtype or data_fingerprint: restore it, or '
        'delete it if the run began on this kind of machine and this data.')
  return value


def saved(folder: pathlib.Path) -> list[int]:
  """Returns the steps of a run's checkpoints, without half-written ones."""
  last = folder / 'checkpoints' / 'last'
  return sorted(int(path.name) for path in last.glob('*')
                if path.name.isdecimal() and path.is_dir())


class RunDirectory:
  """The locked directory of a run; only the leading process `writes`."""

  def __init__(self, folder: pathlib.Path, config: dict, *,
               writes: bool = True):
    self.folder, self._config, self._writes = folder, config, writes
    self._writers, self._made, self._new, self._lock = [], [], False, None
    if writes:
      self._begin()
    elif not _appears(folder / 'config.json'):
      raise UserError(
          f'This process cannot see {folder}, which process 0 created: give '
          'all processes a --workdir on a shared file system.')
    else:
      check_config(folder, config)

  def _begin(self):
    folder = self.folder
    self._made = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
      folder.mkdir(parents=True, exist_ok=True)
      self._lock = files.lock_file(folder / '.lock')
      fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
      raise UserError(
          f'Another process is training in {folder}: wait for it, or choose '
          'another --workdir.') from e
    except OSError as e:
      raise UserError(
          f'Cannot write to the run directory {folder} ({e.strerror}): choose '
          'another with --workdir.') from e
    _check_links(folder)
    check_config(folder, self._config)
    self._new = not (folder / 'config.json').exists()
    if self._new:
      write_json(folder / 'config.json', self._config)

  def undo(self) -> None:
    """Removes the files and folders that this object has made."""
    if self._new:
      for name in ('config.json', '.lock'):
        (self.folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another run may use a folder by now
      for path in self._made:
        path.rmdir()

  def close(self) -> None:
    try:
      for writer in self._writers:
        writer.close()
    finally:
      if self._lock:
        self._lock.close()

  @property
  def metrics_path(self) -> pathlib.Path:
    return self.folder / 'metrics.jsonl'

  def result(self) -> Result | None:
    return result.read_if_there(self.folder / 'result.json')

  def write_environment(self, fields: dict, more: Mapping[str, bytes]) -> None:
    if self._writes:
      write_json(self.folder / 'env.json', fields)
      files.write_all({self.folder / name: data for name, data in more.items()})

  def draw_curves(self, baselines: Mapping[str, float]) -> dict:
    """Draws curves.png; returns fields of the result that curves have."""
    fields = {}
    if self._writes and self.metrics_path.exists():
      from lra.run import curves  # imports matplotlib, which takes a second
      try:
        points = curves.read(self.metrics_path)
        fields['learnt_step'] = curves.learnt_step(points)
        if self._config['train']['mixer_std']:
          fields['mixer_std'] = curves.mixer_std(points)
        curves.plot(self.metrics_path, self.folder / 'curves.png', baselines)
      except UserError as e:
        say(f'No curves are drawn: {e}')
    return fields

  def log(self, **fields) -> None:
    """Appends one object to metrics.jsonl, then to the other writers."""
    if not self._writes:
      return
    try:
      with open(self.metrics_path, 'a', encoding='utf-8') as f:
        f.write(json.dumps(fields) + '\n')
    except FileNotFoundError as e:
      raise UserError(
          f'{self.folder} was removed during training: repeat the command to '
          'start the run again.') from e
    for writer in self._writers:
      writer.write(fields)

  def log_to(self, names: Sequence[str]) -> None:
    """Adds writers, by name, with all earlier points; call after `rewind`."""
    if names and self._writes:
      points = [json.loads(line) for line in self._lines() if line]
      self._writers = writers.make(names, self.folder, self._config, points)

  def rewind(self, step: int, validated_step: int) -> None:
    """Drops metrics after a checkpoint, which come again, and a torn line."""
    if not self._writes:
      return
    last = {'train': step, 'val': validated_step,
            'mixer_std': validated_step, 'test': -1}
    kept, lost = {}, []
    lines = self._lines()
    for number, line in enumerate(lines, 1):
      try:
        point = json.loads(line)
        key = point['split'], point['step']
        if point['step'] <= last[point['split']]:
          kept.setdefault(key, line + '\n')
      except (ValueError, KeyError, TypeError, RecursionError):
        if number < len(lines):  # a kill tears the last line only
          lost.append(str(number))
    if lost:
      say(f'{self.metrics_path}: unreadable lines are dropped (line '
          f'{", ".join(lost)}).')
    if lines:
      files.write_all({self.metrics_path: ''.join(kept.values()).encode()})

  def _lines(self):
    try:
      text = files.read(self.metrics_path, files.MAX_LINES).decode(
          errors='replace')
    except FileNotFoundError:
      return []
    except OSError as e:
      raise UserError(
          f'Cannot read {self.metrics_path} ({e.strerror}): move it away, then '
          'repeat the command.') from e
    return text.split('\n')

  def write_result(self, fields: dict) -> Result:
    """Writes result.json, unless a finished one exists; returns the result."""
    made = result.validate(fields)
    if self._writes:
      before = self.result()
      if before is None or not before.finished:
        result.write(self.folder / 'result.json', made)
    return made


def _appears(path):
  """Returns True if a file of another process is visible, now or soon."""
  last = time.monotonic() + APPEARS_SECONDS
  while not path.exists() and time.monotonic() < last:
    time.sleep(0.2)
    with contextlib.suppress(OSError):
      os.listdir(path.parent)  # makes NFS ask its server again
  return path.exists()
