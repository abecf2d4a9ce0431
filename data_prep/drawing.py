"""Draws Pathfinder images on all cores, and resumes after a kill.

Finished parts of the images are kept in files. A repeated call draws only the
missing parts.
"""

import dataclasses
import errno
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import zipfile
import zlib

import numpy as np

from lra.core import machine, paths
from lra.core.errors import UserError
from lra.core.terminal import progress
from lra.data_prep import stamps

_PART = 500  # images in one file, if they have 32 x 32 pixels
_LOOK_SECONDS = 0.1  # pause between two looks for finished parts
_ERRNO = 50  # offset of errno values from ordinary exit codes
_COMMAND = ('import json, sys; sys.path[:] = json.loads(sys.argv[1]); '
            'from data_prep import drawing; drawing.work()')
_NAMES = ('images', 'labels', 'attempts', 'placed')


def draw(law: stamps.Law, seed: int, total: int, folder: pathlib.Path,
         processes: int | None = None) -> tuple[np.ndarray, ...]:
  """Draws N = `total` images; `law` holds their parameters.

  Image i depends only on `law`, `seed` and i. `folder` keeps finished parts; no
  other call may use it. `processes` is one for each core by default.

  Returns:
    The images, uint8 [N, side, side]; labels, uint8 [N]; attempts at the target
    snakes of each image, int64 [N]; distractors that found room, uint8 [N].

  Raises:
    UserError: numba is not installed, a part is damaged, or a process was
      killed.
    OSError: a part cannot be written.
  """
  _check_numba(law)
  folder.mkdir(parents=True, exist_ok=True)
  # Larger images take longer to draw, so a part has fewer of them.
  size = max(_PART * 32 * 32 // law.side ** 2, min(_PART, 10))
  parts = {range(start, min(start + size, total)): folder / f'{start}.npz'
           for start in range(0, total, size)}
  _draw_missing(law, seed, parts, processes or machine.cpu_count())
  drawn = (np.zeros((total, law.side, law.side), np.uint8),
           np.zeros(total, np.uint8), np.zeros(total, np.int64),
           np.zeros(total, np.uint8))
  for numbers, path in parts.items():
    for whole, part in zip(drawn, _load(path, len(numbers)), strict=True):
      whole[numbers.start:numbers.stop] = part
  return drawn


def _check_numba(law):
  try:
    import numba  # noqa: F401
  except ImportError as e:
    released = law in stamps.LAWS.values()
    raise UserError(
        'Drawing Pathfinder images needs numba: run '
        f'{paths.extra("pathfinder")}'
        f'{", or give the official images with --source" * released}.') from e


def _draw_missing(law, seed, parts, processes):
  missing = {numbers: path for numbers, path in parts.items()
             if not path.exists()}
  total, left = sum(map(len, parts)), sum(map(len, missing))
  bar = progress(total=total, initial=total - left, unit=' images',
                 desc=f'drawing {law.side} x {law.side}')
  work, running = list(missing.items()), []
  with bar:
    try:
      for i in range(min(processes, len(work))):
        running.append(_start(law, seed, work[i::processes]))
      while missing:
        time.sleep(_LOOK_SECONDS)
        _check_ends(running)
        for numbers in [n for n, path in missing.items() if path.exists()]:
          del missing[numbers]
          bar.update(len(numbers))
    finally:
      for process in running:
        process.terminate()
        process.wait()


def _start(law, seed, work):
  """Starts a process that draws the parts of `work`.

  `multiprocessing` cannot be used: its helper process unblocks signals that
  `lra.core.signals` blocks in the main thread.
  """
  task = {'law': dataclasses.asdict(law), 'seed': seed, 'parent': os.getpid(),
          'parts': [[n.start, n.stop, str(path)] for n, path in work]}
  process = subprocess.Popen(
      [sys.executable, '-c', _COMMAND, json.dumps(sys.path)],
      stdin=subprocess.PIPE, text=True)
  try:
    with process.stdin:
      json.dump(task, process.stdin)
  except BrokenPipeError:
    pass  # the process has ended; `_check_ends` reports it
  except BaseException:
    process.kill()
    raise
  return process


def _check_ends(processes):
  for process in processes:
    code = process.poll() or 0
    if code > _ERRNO:
      raise OSError(code - _ERRNO, os.strerror(code - _ERRNO))
    if code > 0:
      raise AssertionError('a process that drew images failed, see above')
    if code < 0:
      raise UserError(
          f'A process that drew images was killed by signal {-code}: run the '
          'same command again to resume.')


def work() -> None:
  """Draws parts, in a process that `_start` started.

  If a part cannot be written, the process ends with exit code `_ERRNO` + errno.
  """
  # The parent handles all other signals, and sends SIGTERM to end this process.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
  task = json.load(sys.stdin)
  from lra.data_prep.snakes import Artist
  law = task['law'] | {'margins': tuple(task['law']['margins'])}
  artist = Artist(stamps.Law(**law), task['seed'])
  for start, stop, path in task['parts']:
    if os.getppid() != task['parent']:
      return
    drawn = zip(*map(artist.draw, range(start, stop)), strict=True)
    try:
      _keep(pathlib.Path(path),
            dict(zip(_NAMES, map(np.stack, drawn), strict=True)))
    except OSError as e:
      sys.exit(_ERRNO + (e.errno or errno.EIO))


def _keep(path, arrays):
  new = path.with_suffix(f'.{os.getpid()}.npz')
  try:
    np.savez_compressed(new, **arrays)
    new.replace(path)
  finally:
    new.unlink(missing_ok=True)


def _load(path, count):
  try:
    with np.load(path) as part:
      arrays = [part[name] for name in _NAMES]
    if any(len(array) != count for array in arrays):
      raise ValueError(f'it does not have {count} images')
  except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile,
          zlib.error) as e:
    raise UserError(f'{path} is damaged ({e}): delete it and run the command '
                    'again.') from e
  return arrays
