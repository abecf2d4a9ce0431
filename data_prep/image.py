"""Image: CIFAR-10 or CIFAR-100 in grey, pixel by pixel.

A source is anything that `lra.data_prep.cifar` reads. The same images give the
same data set in any file format: examples are sorted by the hash of their
pixels. The validation split takes 500 images of each class from train, by that
hash; for CIFAR-100, which has ten times as many classes, 50.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lra.data_prep import cifar
from lra.data_prep.builder import Builder, configs
from lra.data_prep.content import Content, divided
from lra.data_prep.source import Origin

# Size and SHA-256 of CIFAR-100 are from url_checksums/cifar100.txt of TFDS 4.9.
ARCHIVES = {
    cifar.CIFAR10: ('cifar-10-python.tar.gz', 170_498_071, (
        '6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce')),
    cifar.CIFAR100: ('cifar-100-binary.tar.gz', 168_513_733, (
        '58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec'))}
VAL_IMAGES = 5000
WEIGHTS = np.float32([0.2989, 0.587, 0.114])  # of red, green and blue


class Image(Builder):
  """Grey CIFAR-10 of Long Range Arena (arXiv 2011.04006), or CIFAR-100."""
  BUILDER_CONFIGS = configs(
      lra='32 x 32 pixels', mini='16 x 16 pixels', cifar100='100 classes')

  @property
  def edition(self) -> cifar.Edition:
    hundred = self.builder_config.name == 'cifar100'
    return cifar.CIFAR100 if hundred else cifar.CIFAR10

  @property
  def origin(self):
    name, *about = ARCHIVES[self.edition]
    return Origin(self.edition.title, self.edition.layout, {
        f'https://www.cs.toronto.edu/~kriz/{name}': about})

  def parameters(self):
    return {'val': VAL_IMAGES, 'mini': self.builder_config.name == 'mini'}

  def make(self, files):
    images, stored = cifar.read(files, self.edition)
    mini = self.builder_config.name == 'mini'
    return content(images, f'{self.edition.title}, images stored as {stored}',
                   (lambda pixels: quarter(grey(pixels))) if mini else grey)

  def inputs(self, files):
    return files.paths(self.edition.kind)


def content(images: Mapping[str, Sequence], origin: str,
            convert: Callable[[np.ndarray], np.ndarray]) -> Content:
  """Makes a data set of images; part of train becomes the validation split.

  Args:
    images: 'train' and 'test', pairs of (uint8 [...], label).
    origin: the origin of the images.
    convert: function from uint8 [N, ...] to grey, uint8 [N, H, W].
  """
  splits = divided(*(_examples(*zip(*images[split], strict=True), convert)
                     for split in ('train', 'test')), VAL_IMAGES)
  return Content(splits, {
      'origin': origin,
      'val': f'{VAL_IMAGES} images of train, stratified, by hash of pixels'})


def _examples(pixels, labels, convert):
  keys = (hashlib.sha256(image).hexdigest() for image in pixels)
  documents = (image.tobytes() for image in convert(np.stack(pixels)))
  return sorted(zip(keys, documents, labels, strict=True),
                key=lambda example: (example[0], example[2]))


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
