"""Draws Pathfinder images on all cores, and resumes after a kill."""

import pathlib
import threading
import zipfile
import zlib
from concurrent import futures

import numpy as np

from lra.core import machine, paths
from lra.core.errors import UserError
from lra.core.terminal import progress
from lra.data_prep import stamps

_PART = 500  # images in one file, if they have 32 x 32 pixels
_NAMES = ('images', 'labels', 'attempts', 'placed')


def draw(law: stamps.Law, seed: int, total: int, folder: pathlib.Path,
         threads: int | None = None) -> tuple[np.ndarray, ...]:
  """Draws N = `total` images; image i depends only on `law`, `seed` and i.

  `folder` keeps finished parts, which a repeated call does not draw again; no
  other call may use it.

  Returns:
    The images, uint8 [N, side, side]; labels, uint8 [N]; attempts at the target
    snakes of each image, int64 [N]; distractors that found room, uint8 [N].
  """
  paths.need('numba', 'Drawing Pathfinder images', 'pathfinder')
  folder.mkdir(parents=True, exist_ok=True)
  # Larger images take longer to draw, so a part has fewer of them.
  size = max(_PART * 32 * 32 // law.side ** 2, min(_PART, 10))
  parts = {range(start, min(start + size, total)): folder / f'{start}.npz'
           for start in range(0, total, size)}
  _draw_missing(law, seed, parts, threads or machine.cpu_count())
  drawn = (np.zeros((total, law.side, law.side), np.uint8),
           np.zeros(total, np.uint8), np.zeros(total, np.int64),
           np.zeros(total, np.uint8))
  for numbers, path in parts.items():
    for whole, part in zip(drawn, _load(path, len(numbers)), strict=True):
      whole[numbers.start:numbers.stop] = part
  return drawn


def _draw_missing(law, seed, parts, threads):
  """Draws the parts without a file; threads run compiled code in parallel."""
  from lra.data_prep.snakes import Artist
  artist, stopped = Artist(law, seed), threading.Event()
  missing = {numbers: path for numbers, path in parts.items()
             if not path.exists()}
  total, left = sum(map(len, parts)), sum(map(len, missing))

  def draw_part(numbers, path):
    drawn = []
    for number in numbers:
      if stopped.is_set():
        return 0
      drawn.append(artist.draw(number))
    _keep(path, map(np.stack, zip(*drawn, strict=True)))
    return len(numbers)

  with futures.ThreadPoolExecutor(threads) as pool, progress(
      total=total, initial=total - left, unit=' images',
      desc=f'drawing {law.side} x {law.side}') as bar:
    try:
      work = [pool.submit(draw_part, *part) for part in missing.items()]
      for part in futures.as_completed(work):
        bar.update(part.result())
    finally:
      stopped.set()


def _keep(path, arrays):
  new = path.with_name(f'{path.stem}.new.npz')
  try:
    np.savez_compressed(new, **dict(zip(_NAMES, arrays, strict=True)))
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
