"""Image: CIFAR-10 or CIFAR-100 in grey, pixel by pixel.

A source is anything that `lra.data_prep.cifar` reads. The same images give the
same
data set in any file format: examples are sorted by the hash of their pixels.
The validation split takes 500 images of each class from train, by that hash;
for CIFAR-100, which has ten times as many classes, 50.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

from lra.core.errors import UserError
from lra.data_prep import cifar
from lra.data_prep.builder import Builder
from lra.data_prep.content import Content, choose, duplicates
from lra.data_prep.pathfinder import images_split

# Size and SHA-256 of CIFAR-100 are from url_checksums/cifar100.txt of TFDS 4.9.
ARCHIVES = {
    cifar.CIFAR10: checksums.UrlInfo(
        size=170_498_071, filename='cifar-10-python.tar.gz', checksum=(
            '6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce')
    ),
    cifar.CIFAR100: checksums.UrlInfo(
        size=168_513_733, filename='cifar-100-binary.tar.gz', checksum=(
            '58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec')
    )}
VAL_IMAGES = 5000
WEIGHTS = np.float32([0.2989, 0.587, 0.114])  # of red, green and blue


class Image(Builder):
  """Grey CIFAR-10 of Long Range Arena (arXiv 2011.04006), or CIFAR-100."""
  BUILDER_CONFIGS = [
      tfds.core.BuilderConfig(name='lra', description='32 x 32 pixels'),
      tfds.core.BuilderConfig(name='mini', description='16 x 16 pixels'),
      tfds.core.BuilderConfig(name='cifar100', description='100 classes'),
  ]

  @property
  def edition(self) -> cifar.Edition:
    hundred = self.builder_config.name == 'cifar100'
    return cifar.CIFAR100 if hundred else cifar.CIFAR10

  @property
  def url_infos(self):
    info = ARCHIVES[self.edition]
    return {f'https://www.cs.toronto.edu/~kriz/{info.filename}': info}

  def parameters(self):
    return {'val': VAL_IMAGES, 'mini': self.builder_config.name == 'mini'}

  def make(self, dl_manager):
    source = self.source or self.fetch(
        dl_manager, ARCHIVES[self.edition].filename, self.edition.title)
    images, stored = cifar.read(source, self.edition)
    mini = self.builder_config.name == 'mini'
    return content(images, f'{self.edition.title}, images stored as {stored}',
                   (lambda pixels: quarter(grey(pixels))) if mini else grey)

  def identify_source(self):
    if self.source and not self.source.exists():
      raise UserError(f'{self.source} does not exist: '
                      f'{self.edition.layouts}.')
    return cifar.identify(self.source, self.edition) if self.source else None


BUILDER = Image


def content(images: Mapping[str, Sequence], origin: str,
            convert: Callable[[np.ndarray], np.ndarray]) -> Content:
  """Makes a data set of images; part of train becomes the validation split.

  Args:
    images: the images of 'train' and 'test', pairs of (uint8 [...], label).
    origin: the origin of the images.
    convert: function from uint8 [N, ...] to grey, uint8 [N, H, W].
  """
  train, test = _sorted(images['train']), _sorted(images['test'])
  keys, pixels, labels = train
  chosen = np.zeros(len(keys), bool)
  chosen[choose(keys, labels, VAL_IMAGES)] = True
  parts = {'train': (pixels[~chosen], labels[~chosen]),
           'val': (pixels[chosen], labels[chosen]), 'test': test[1:]}
  splits = {name: images_split(convert(pixels), labels)
            for name, (pixels, labels) in parts.items()}
  return Content(splits, {
      'origin': origin,
      'val': f'{VAL_IMAGES} images of train, stratified, by hash of pixels',
      'duplicates': duplicates(splits)})


def _sorted(examples):
  """Returns (hashes, uint8 [N, ...], labels), sorted by hash."""
  hashes = [hashlib.sha256(image).hexdigest() for image, _ in examples]
  order = sorted(range(len(hashes)), key=lambda i: (hashes[i], examples[i][1]))
  return ([hashes[i] for i in order], np.stack([examples[i][0] for i in order]),
          np.array([examples[i][1] for i in order]))


def grey(images: np.ndarray) -> np.ndarray:
  """Converts uint8 [..., 3] to grey, uint8 [...], as Long Range Arena does.

  Its code calls tf.image.rgb_to_grayscale. That divides by 255, multiplies the
  weighted sum by 255.5 and rounds down.
  """
  shares = images.astype(np.float32) / np.float32(255)
  # Sums in a fixed order; the order of a matmul would depend on the CPU.
  red, green, blue = np.moveaxis(shares * WEIGHTS, -1, 0)
  return np.uint8(np.floor((red + green + blue) * np.float32(255.5)))


def quarter(images):
  """Averages blocks of 2 x 2 pixels: uint8 [N, H, W] to [N, H / 2, W / 2]."""
  n, h, w = images.shape
  blocks = images.reshape(n, h // 2, 2, w // 2, 2).astype(np.float32)
  return np.uint8(np.round(blocks.mean((2, 4))))
