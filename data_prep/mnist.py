"""MNIST: handwritten digits, pixel by pixel, ten classes.

A source is a folder with the four files of LeCun, Cortes and Burges, gzipped or
not. The format idx is a header and the values. The header has two bytes of
zero, the type of the values (8 is uint8), the number of axes, and the length of
each axis in four bytes, the first one being the highest. The validation split
takes 500 images of each class from train, by the hash of their pixels.
"""

import math
import pathlib
import struct

import numpy as np

from lra.core.errors import UserError
from lra.data_prep import image
from lra.data_prep.builder import Builder, configs
from lra.data_prep.source import BROKEN, Origin, opened

# Size and SHA-256 of each file, gzipped, from url_checksums/mnist.txt of TFDS
# 4.9, which has the address too.
URL = 'https://storage.googleapis.com/cvdf-datasets/mnist/'
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


class Mnist(Builder):
  """Handwritten digits of MNIST (LeCun et al. 1998)."""
  BUILDER_CONFIGS = configs(idx='28 x 28 pixels')
  names = FILES
  origin = Origin(
      'MNIST', f'a folder with {", ".join(FILES)}, each as it is or with .gz',
      {f'{URL}{name}.gz': about for name, about in FILES.items()}, 'mnist')

  def parameters(self):
    return {'val': image.VAL_IMAGES}

  def make(self, files):
    found, paths = {}, iter(files.find(FILES))
    for split, count in COUNTS.items():
      images = read_idx(next(paths), (count, SIDE, SIDE))
      labels = read_idx(path := next(paths), (count,))
      if labels.max() > 9:
        raise _damaged(path, f'a label is {labels.max()}')
      found[split] = list(zip(images, labels.tolist(), strict=True))
    return image.content(found, 'MNIST', lambda pixels: pixels)


def read_idx(path: pathlib.Path, shape: tuple[int, ...]) -> np.ndarray:
  """Returns the values, uint8 `shape`, of an idx file, plain or compressed."""
  header = struct.pack(f'>2xBB{len(shape)}I', 8, len(shape), *shape)
  size = len(header) + math.prod(shape)
  try:
    with opened(path) as stream:
      data = stream.read(size + 1)
    if data[:len(header)] != header:
      raise ValueError('it does not begin with the header of uint8 '
                       f'{" x ".join(map(str, shape))}')
    if len(data) != size:
      raise ValueError(f'it has {"more" if len(data) > size else "less"} than '
                       f'{size:,} bytes')
  except BROKEN as e:
    raise _damaged(path, e) from e
  return np.frombuffer(data, np.uint8, offset=len(header)).reshape(shape)


def _damaged(path, why):
  return UserError(f'{path} is damaged ({why}): download it again.')
