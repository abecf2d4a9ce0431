"""Pathfinder and Path-X: are the two discs on one curve? Two classes.

Without a source the images are drawn by `data_prep.snakes`; a source is a
directory of the official release with `metadata` and `imgs`, or the one that
holds it. The arena scores its hard set, `curv_contour_length_14`.

In the order of the tables the first 80% are train, the next 10% val and the
last 10% test. Test images of others are not these: Long Range Arena slices a
data set in the order that TFDS stored it in, S4 splits by `random_split` with
seed 42, Nystromformer shuffles.
"""

import dataclasses
import hashlib
import json
import pathlib
import shutil

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from data_prep import drawing, pictures, stamps
from data_prep.builder import Builder
from data_prep.content import SPLITS, Content, Split
from data_prep.progress import progress
from data_prep.subset import duplicates
from data_prep.tables import bad_row
from lra.errors import UserError

HARD = 'curv_contour_length_14'
_FOLDERS = ('metadata', 'imgs')
_LABEL = 3  # which field of a line of metadata; the last one that is read
_SEED = 0
_FEWEST = 10  # images of which a tenth is one
# One image of the release is an empty file.
_KNOWN_EMPTY = 'pathfinder32/curv_baseline/imgs/0/sample_172.png'


# Short snakes that are rather straight: what two processor cores can learn.
MINI = stamps.Law(16, 1, 2, (1,), 3, 1.0, 3, 2, 0.5, 1.5, 2, 1, 2.0, 0.75)


@dataclasses.dataclass(frozen=True)
class Variant:
  """A version of the task: how it is drawn, and examples of its splits.

  Attributes:
    law: of its images.
    sizes: examples of train, val and test.
    greys: how many different greys there are, black and white included.
    spare: images drawn besides, so that none need be there twice; 0 lets them.
  """
  law: stamps.Law
  sizes: tuple[int, int, int] = (160_000, 20_000, 20_000)
  greys: int = 256
  spare: int = 0


VARIANTS = {
    **{str(side): Variant(law) for side, law in stamps.LAWS.items()},
    'mini': Variant(MINI, (60_000, 2000, 5000), greys=4, spare=13_000),
}


class Pathfinder(Builder):
  """Pathfinder of Long Range Arena (arXiv 2011.04006)."""
  BUILDER_CONFIGS = [
      tfds.core.BuilderConfig(name=name, description=(
          f'{v.law.side} x {v.law.side} pixels, {v.law.contour_length} dashes'))
      for name, v in VARIANTS.items()]

  GENERATED = True

  def parameters(self):
    return {'seed': _SEED, **dataclasses.asdict(self.variant)}

  @property
  def variant(self) -> Variant:
    return VARIANTS[self.builder_config.name]

  def make(self, dl_manager):
    if self.source:
      return import_official(self._official(), self.variant.law.side)
    return generate(self.variant, self._partial())

  def identify_source(self):
    if self.source:
      return {path.name: path.stat().st_size
              for path in _tables(self._official())}
    return None

  def _official(self):
    side = self.variant.law.side
    layout = (f'--source of {self.task_name} must be the folder '
              f'pathfinder{side}/{HARD} of the release, or one that it is in')
    if not self.source.exists():
      raise UserError(f'{self.source} does not exist: {layout}.')
    # The release has lra_release in lra_release: the inner one is what the
    # scripts of the arena and of others read.
    for place in ('', HARD, *(f'{outer}pathfinder{side}/{HARD}' for outer in (
        'lra_release/lra_release/', 'lra_release/', ''))):
      folder = self.source / place
      missing = [name for name in _FOLDERS if not (folder / name).is_dir()]
      if not missing:
        return folder
      if len(missing) == 1:
        raise UserError(f'{folder} has no folder {missing[0]}: unpack the '
                        'release again.')
    raise UserError(f'{self.source} has no folders {" and ".join(_FOLDERS)}: '
                    f'{layout}.')

  def _partial(self):
    """Where drawn images wait until all are there; of one law and seed."""
    text = json.dumps([dataclasses.asdict(self.variant), _SEED])
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    return pathlib.Path(self.data_dir).parent / f'drawn-{name}'

  def _download_and_prepare(self, *args, **kwargs):
    super()._download_and_prepare(*args, **kwargs)
    if not self.source:
      shutil.rmtree(self._partial(), ignore_errors=True)


BUILDER = Pathfinder


def generate(variant: Variant, partial: pathlib.Path,
             processes: int | None = None) -> Content:
  """The data set of a variant, always the same, on any number of processes.

  Args and raised errors are those of `drawing.draw`.
  """
  total = sum(variant.sizes)
  images, labels, attempts, placed = drawing.draw(
      variant.law, _SEED, total + variant.spare, partial, processes)
  if variant.greys < 256:
    images = _coarse(images, variant.greys)
  if variant.spare:
    kept = _first_of_each(images)[:total]
    images, labels = images[kept], labels[kept]
  if len(images) < total:
    raise ValueError(f'{variant.spare} spare images are not enough')
  return _content(images, labels, variant.sizes, {
      'origin': f'drawn with seed {_SEED}, not the released images',
      'law': dataclasses.asdict(variant.law),
      'attempts_per_image': round(float(attempts.mean()), 1),
      'distractors_per_image': round(float(placed.mean()), 3)})


def _coarse(images, greys):
  """The nearest of so many greys, black and white included."""
  step = 255 / (greys - 1)
  table = np.uint8(np.round(np.round(np.arange(256) / step) * step))
  return table[images]


def _first_of_each(images):
  """Indices of the images that did not occur before, in ascending order."""
  rows = images.reshape(len(images), -1)
  return np.sort(np.unique(rows, axis=0, return_index=True)[1])


def import_official(folder: pathlib.Path, side: int) -> Content:
  """The images that a folder's `metadata` lists, in its order.

  Raises:
    UserError: a table or an image is missing or wrong; names it.
  """
  rows = [row for path in _tables(folder) for row in _read_table(path)]
  if len(rows) < _FEWEST:
    raise UserError(f'{folder / "metadata"} lists {len(rows)} images, too few '
                    'for three splits: unpack the release again.')
  _check_listed(folder, {str(name) for name, _ in rows})
  images = np.zeros((len(rows), side, side), np.uint8)
  kept = np.ones(len(rows), bool)
  for i, (name, _) in enumerate(progress(
      rows, desc=f'reading {folder.name}', unit=' images')):
    path = folder / name
    if path.as_posix().endswith(_KNOWN_EMPTY):
      kept[i] = False
    else:
      images[i] = _read_image(path, side)
  labels = np.array([label for _, label in rows])[kept]
  total = len(labels)
  sizes = (total * 8 // 10, total * 9 // 10 - total * 8 // 10,
           total - total * 9 // 10)
  return _content(images[kept], labels, sizes, {
      'origin': f'official images, {_origin(folder, side)}'})


def _origin(folder, side):
  """The folder, and those above it as far as they are of the release."""
  names = [folder.name]
  for parent in folder.absolute().parents:
    if parent.name not in ('lra_release', f'pathfinder{side}'):
      break
    names.append(parent.name)
  return '/'.join(reversed(names))


def _tables(folder):
  """The tables of a folder in the order of their numbers."""
  numbers = sorted(int(p.stem) for p in (folder / 'metadata').glob('*.npy')
                   if p.stem.isdecimal() and p.stem.isascii())
  if not numbers:
    raise UserError(f'{folder / "metadata"} has no tables 0.npy, 1.npy, ...: '
                    'unpack the release again.')
  with_images = {int(p.name) for p in (folder / 'imgs').iterdir()
                 if p.name.isdecimal() and p.name.isascii()}
  missing = (with_images | set(range(numbers[0], numbers[-1]))) - set(numbers)
  if missing:
    raise UserError(f'{folder / "metadata" / f"{min(missing)}.npy"} is missing'
                    ', so that some images are in no table: unpack the release '
                    'again.')
  return [folder / 'metadata' / f'{number}.npy' for number in numbers]


def _check_listed(folder, listed):
  """Refuses a table that lists fewer images than its folder has."""
  for path in _tables(folder):
    images = {f'imgs/{path.stem}/{p.name}'
              for p in (folder / 'imgs' / path.stem).glob('[!.]*.png')}
    if not images <= listed:
      raise UserError(f'{path} lists {len(images & listed):,} of the '
                      f'{len(images):,} images of imgs/{path.stem}: unpack the '
                      'release again.')


def _read_table(path):
  """(name of the image, label) of each line; the tables are text."""
  try:
    lines = path.read_text(encoding='ascii').splitlines()
  except ValueError as e:
    raise bad_row(path, 1, 'it is not the text of the release') from e
  except OSError as e:
    raise bad_row(path, 1, f'cannot be read ({e.strerror})') from e
  if not lines:
    raise bad_row(path, 1, 'the table is empty')
  for number, line in enumerate(lines, 1):
    fields = line.split()
    if len(fields) <= _LABEL:
      raise bad_row(path, number, f'{len(fields)} fields, none is the label')
    if fields[_LABEL] not in ('0', '1'):
      raise bad_row(path, number, f'the label is {fields[_LABEL]}')
    name = pathlib.PurePosixPath(fields[0], fields[1])
    if name.is_absolute() or '..' in name.parts:
      raise bad_row(path, number, f'the image {name} is outside of its folder')
    yield name, int(fields[_LABEL])


def _read_image(path, side):
  try:
    with Image.open(path) as image:
      if image.size != (side, side):
        width, height = image.size
        raise UserError(
            f'{path} has {width} x {height} pixels instead of {side} x {side}: '
            'choose the task of its size.')
      return pictures.pixels(image, 'L')
  except (OSError, SyntaxError, ValueError,
          Image.DecompressionBombError) as e:
    reason = 'it is missing' if isinstance(e, FileNotFoundError) else e
    raise UserError(f'{path} cannot be read ({reason}): unpack the release '
                    'again.') from e


def _content(images, labels, sizes, info):
  splits, start = {}, 0
  for name, size in zip(SPLITS, sizes, strict=True):
    stop = start + size
    splits[name] = images_split(images[start:stop], labels[start:stop])
    start = stop
  return Content(splits, {**info, 'duplicates': duplicates(splits)})


def images_split(images: np.ndarray, labels) -> Split:
  """A split out of uint8 [N, H, W] images, row by row, and [N] labels."""
  pixels = images[0].size if len(images) else 1
  return Split(np.ascontiguousarray(images).reshape(-1),
               np.arange(len(images) + 1, dtype=np.int64) * pixels,
               np.asarray(labels, np.int32))
