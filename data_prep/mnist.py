"""MNIST: handwritten digits, pixel by pixel, ten classes.

A source is a folder with the four files of LeCun, Cortes and Burges, gzipped or
not. The format idx is a header and the values. The header has two bytes of
zero, the type of the values (8 is uint8), the number of axes, and the length of
each axis in four bytes, the first one being the highest. The validation split
takes 500 images of each class from train, by the hash of their pixels.
"""

import lzma
import math
import pathlib
import struct
import zlib

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

from lra.core import files
from lra.core.errors import UserError
from lra.data_prep import archives, image
from lra.data_prep.builder import Builder
from lra.data_prep.content import Content

URL = 'https://storage.googleapis.com/cvdf-datasets/mnist/'
# Size and SHA-256 of each file, gzipped, from url_checksums/mnist.txt of TFDS
# 4.9, which has the address too.
FILES = {
    'train-images-idx3-ubyte': (
        9_912_422,
        '440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609'),
    'train-labels-idx1-ubyte': (
        28_881,
        '3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c'),
    't10k-images-idx3-ubyte': (
        1_648_877,
        '8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6'),
    't10k-labels-idx1-ubyte': (
        4542,
        'f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6')}
COUNTS = {'train': 60_000, 'test': 10_000}
SIDE = 28

_LAYOUT = (f'--source of mnist must be a folder with {", ".join(FILES)}, each '
           'as it is or with .gz')


class Mnist(Builder):
  """Handwritten digits of MNIST (LeCun et al. 1998)."""
  BUILDER_CONFIGS = [tfds.core.BuilderConfig(
      name='idx', description='28 x 28 pixels')]
  url_infos = {
      f'{URL}{name}.gz': checksums.UrlInfo(
          size=size, checksum=digest, filename=f'{name}.gz')
      for name, (size, digest) in FILES.items()}

  def parameters(self):
    return {'val': image.VAL_IMAGES}

  def make(self, dl_manager) -> Content:
    paths = self._paths() if self.source else self.fetch_all(
        dl_manager, 'mnist', 'MNIST')
    found = {}
    for i, (split, count) in enumerate(COUNTS.items()):
      images, labels = paths[2 * i:2 * i + 2]
      found[split] = list(zip(
          read_idx(images, (count, SIDE, SIDE)), _labels(labels, count),
          strict=True))
    return image.content(found, 'MNIST', lambda pixels: pixels)

  def identify_source(self):
    return {path.name: path.stat().st_size
            for path in self._paths()} if self.source else None

  def _paths(self) -> list[pathlib.Path]:
    """Returns the files of the source in the order of FILES."""
    found = []
    for name in FILES:
      both = [self.source / name, self.source / f'{name}.gz']
      found += [path for path in both if path.exists()][:1]
      if both[0] not in found and both[1] not in found:
        raise UserError(f'{self.source} has no {name}: {_LAYOUT}.')
    return found


BUILDER = Mnist


def read_idx(path: pathlib.Path, shape: tuple[int, ...]) -> np.ndarray:
  """Reads an idx file, plain or compressed.

  Args:
    path: the file.
    shape: shape of its values.

  Returns:
    The values, uint8.

  Raises:
    UserError: the file cannot be read, or is no idx file of this shape.
  """
  header = struct.pack(f'>2xBB{len(shape)}I', 8, len(shape), *shape)
  size = len(header) + math.prod(shape)
  try:
    with files.opened(path) as file, archives.unpacked(file) as stream:
      data = stream.read(size + 1)
    if data[:len(header)] != header:
      raise ValueError('it does not begin with the header of uint8 '
                       f'{" x ".join(map(str, shape))}')
    if len(data) != size:
      raise ValueError(f'it has {"more" if len(data) > size else "less"} than '
                       f'{size:,} bytes')
  except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as e:
    raise UserError(f'{path} is damaged ({e}): download it again.') from e
  return np.frombuffer(data, np.uint8, offset=len(header)).reshape(shape)


def _labels(path, count):
  labels = read_idx(path, (count,))
  if labels.max() > 9:
    raise UserError(f'{path} is damaged (a label is {labels.max()}): download '
                    'it again.')
  return labels.tolist()
