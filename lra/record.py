"""The run directory: config, environment, metrics, result; all atomic."""

import errno
import fcntl
import hashlib
import json
import os
import pathlib
import platform
import subprocess
from importlib import metadata

from lra import files, schema
from lra.errors import UserError

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy')


def config_hash(config: dict) -> str:
  """Eight hex digits of what the config makes of an experiment."""
  identity = {k: v for k, v in config.items() if k not in schema.MACHINE_FIELDS}
  text = json.dumps(identity, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]


def run_name(config: dict) -> str:
  """`<config hash>-s<seed>`."""
  return f'{config_hash(config)}-s{config["seed"]}'


def run_folder(config: dict) -> pathlib.Path:
  """Where a run lives unless told otherwise: runs/<task>/<model>/<name>."""
  return pathlib.Path(
      'runs', config['task'], config['model']['name'], run_name(config))


def write_json(path: pathlib.Path, value) -> None:
  """Writes indented JSON, all or nothing; UserError where it cannot."""
  text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
  files.write_all({path: f'{text}\n'.encode()})


def read_json(path: pathlib.Path):
  """Reads JSON; None where there is no file.

  Raises:
    UserError: the file is not JSON.
  """
  try:
    return json.loads(path.read_text(encoding='utf-8'))
  except (FileNotFoundError, NotADirectoryError):
    return None
  except ValueError as e:
    raise UserError(
        f'{path} is damaged ({e}): delete the run directory to start over.'
    ) from e


def flatten(config: dict, prefix: str = '') -> dict:
  """Nested dict to {'train.steps': 100, ...}."""
  flat = {}
  for key, value in config.items():
    if isinstance(value, dict):
      flat.update(flatten(value, f'{prefix}{key}.'))
    else:
      flat[prefix + key] = value
  return flat


def git_state() -> dict:
  """Commit of this checkout and whether it differs from it."""
  def git(*args):
    try:
      return subprocess.run(
          ('git', *args), cwd=pathlib.Path(__file__).parent, text=True,
          capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
      return None

  # What a finished run writes itself does not count.
  changes = git('status', '--porcelain', '--untracked-files=no', '--',
                ':(top)', ':(top,exclude)leaderboard.md',
                ':(top,exclude)lra/results')
  return {'git_commit': git('rev-parse', 'HEAD'), 'git_dirty': bool(changes)}


def environment() -> dict:
  """Versions of what computes, and the host's processor."""
  return {**git_state(), 'python': platform.python_version(),
          'machine': platform.machine(), 'cpus': cpu_count(),
          'versions': {p: metadata.version(p) for p in _PACKAGES}}


def cpu_count() -> int:
  """Cores this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(
      os, 'sched_getaffinity') else os.cpu_count()


def out_of_memory(error: Exception) -> bool:
  """Whether JAX reports that the device's memory is full."""
  return 'RESOURCE_EXHAUSTED' in str(error) and not disk_full(error)


def disk_full(error: BaseException) -> bool:
  """Whether an error of the file system or of Orbax is about a full disk."""
  return getattr(error, 'errno', None) in (errno.ENOSPC, errno.EDQUOT) or (
      'No space left' in str(error))


class Run:
  """A run directory of one config and seed.

  The directory is locked while the object lives.

  Raises:
    UserError: the directory cannot be written, is of another config, or is
      in use by another process.
  """

  def __init__(self, folder: pathlib.Path, config: dict):
    self.folder = folder
    try:
      folder.mkdir(parents=True, exist_ok=True)
      self._lock = open(folder / '.lock', 'w')
      fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
      raise UserError(
          f'Another process is training in {folder}: wait for it, or choose '
          'another --workdir.') from e
    except OSError as e:
      raise UserError(
          f'Cannot write to the run directory {folder} ({e.strerror}): choose '
          'another with --workdir.') from e
    self._check_config(config)

  def close(self) -> None:
    """Lets go of the directory."""
    self._lock.close()

  def _check_config(self, config):
    path = self.folder / 'config.json'
    theirs = read_json(path)
    if theirs is None:
      write_json(path, config)
      return
    ours, theirs = flatten(config), flatten(theirs)
    missing = object()
    differ = [
        k for k in sorted({*ours, *theirs}) if k != 'data_dir'
        and ours.get(k, missing) != theirs.get(k, missing)]
    if differ:
      raise UserError(
          f'{self.folder} belongs to a run with another config (it differs '
          f'in {", ".join(differ)}): choose another --workdir.')

  @property
  def metrics_path(self) -> pathlib.Path:
    return self.folder / 'metrics.jsonl'

  def result(self) -> dict | None:
    """The run's result, None before there is one."""
    return read_json(self.folder / 'result.json')

  def log(self, **fields) -> None:
    """Appends one object to metrics.jsonl."""
    with open(self.metrics_path, 'a', encoding='utf-8') as f:
      f.write(json.dumps(fields) + '\n')

  def rewind(self, step: int) -> None:
    """Drops metrics logged after `step`, and a line torn by a kill."""
    if not self.metrics_path.exists():
      return
    kept = []
    for line in self.metrics_path.read_text(encoding='utf-8').splitlines():
      try:
        if json.loads(line)['step'] <= step:
          kept.append(line + '\n')
      except (ValueError, KeyError):
        continue
    files.write_all({self.metrics_path: ''.join(kept).encode()})

  def write_result(self, fields: dict) -> None:
    """Writes result.json, never over a finished one.

    Raises:
      UserError: the fields are not a sound record.
    """
    schema.validate(fields)
    before = self.result()
    if before is None or before['status'] not in FINISHED:
      write_json(self.folder / 'result.json', fields)


FINISHED = ('ok', 'diverged')
