"""Reads the RGB images and labels of CIFAR-10 or CIFAR-100.

A source is an official archive (python or binary version) or its unpacked
folder, or a data set prepared by TFDS. For CIFAR-10 it may also be a folder or
an archive of image files, with one folder per class. Labels of CIFAR-100 are
the fine ones.
"""

import dataclasses
import io
import pickle
import re
import tempfile

import numpy as np
from array_record.python import array_record_module
from PIL import Image
from tensorflow_datasets.proto import tf_example_pb2

from lra.core.errors import UserError
from lra.core.terminal import progress
from lra.data_prep import encode
from lra.data_prep.source import Source

CLASSES = ('airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog',
           'horse', 'ship', 'truck')
SIDE = 32
COUNTS = {'train': 50_000, 'test': 10_000}

_PIXELS = 3 * SIDE * SIDE
_LARGEST = 1 << 28  # most bytes of a file
_FILE = re.compile(
    rf'(?:.*/)?(train|test)/({"|".join(CLASSES)})/[^/]+\.(png|jpg|jpeg)',
    re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Edition:
  """CIFAR-10 or CIFAR-100."""
  title: str
  classes: int
  batches: str  # pattern of files in the python version; binary adds `.bin`
  labels: bytes  # key of the labels in the python version
  label_bytes: int  # before an image in the binary version; the last counts
  others: str  # further sources, for errors

  @property
  def layout(self) -> str:
    name = self.title.lower()
    return (f'{name}-python.tar.gz, {name}-binary.tar.gz, '
            f'{name.replace("-", "")} as prepared by TFDS, or a folder '
            f'{self.others}')

  def kind(self, path: str) -> str:
    """Returns the format of a file from its name; '' if it has no images."""
    name = path.rpartition('/')[2]
    match = re.fullmatch(rf'(?:{self.batches})(\.bin)?', name)
    if match:
      return 'binary' if match[1] else 'python'
    if re.fullmatch(rf'cifar{self.classes}-(train|test)\.'
                    r'(tfrecord|array_record)-\d+-of-\d+', name):
      return 'tfds'
    match = _FILE.fullmatch(path)
    if match and self is CIFAR10:
      return 'png' if match[3].lower() == 'png' else 'jpeg'
    return ''


CIFAR10 = Edition('CIFAR-10', 10, r'data_batch_[1-5]|test_batch', b'labels', 1,
                  'or archive with folders of images, train/airplane and so on')
CIFAR100 = Edition('CIFAR-100', 100, 'train|test', b'fine_labels', 2,
                   'of its files')


def read(source: Source, edition: Edition = CIFAR10
         ) -> tuple[dict[str, list], str]:
  """Reads all images.

  Returns:
    A dict with the images of 'train' and 'test', each a list of (uint8
    [32, 32, 3], label). And their format: 'python', 'binary', 'tfds', 'png' or
    'jpeg'.
  """
  path, found, kinds = source.path, {split: [] for split in COUNTS}, set()
  with progress(total=sum(COUNTS.values()), unit=' images',
                desc=f'reading {path.name}') as bar:
    for name, data in source.files(
        lambda name: edition.kind(name) and _LARGEST):
      try:
        split, images, labels = _images(name, data, edition)
        for label in labels:
          if label not in range(edition.classes):
            raise ValueError(f'a label is {label}')
        images = list(zip(images, map(int, labels), strict=True))
      except Exception as e:  # decoders raise any exception for damaged bytes
        raise UserError(f'{name} is damaged ({e}): download or unpack it again.'
                        ) from e
      found[split] += images
      kinds.add(edition.kind(name))
      bar.update(len(images))
  if not kinds:
    raise source.refused(f'has no images of {edition.title}')
  for split, count in COUNTS.items():
    if len(found[split]) != count:
      raise UserError(
          f'{path} has {len(found[split]):,} images of {split} instead of '
          f'{count:,}: download or unpack it again.')
  if len(kinds) > 1:
    raise UserError(f'{path} mixes {" and ".join(sorted(kinds))} images: '
                    'keep one kind.')
  return found, *kinds


def _images(path, data, edition):
  """Returns the split, the images and the labels of a file."""
  kind, name = edition.kind(path), path.rpartition('/')[2]
  split = 'test' if 'test' in name else 'train'
  if kind == 'python':
    batch = _Unpickler(io.BytesIO(data), encoding='bytes').load()
    return split, _planes(np.asarray(batch[b'data'], np.uint8)), (
        batch[edition.labels])
  if kind == 'binary':
    first = edition.label_bytes
    rows = np.frombuffer(data, np.uint8).reshape(-1, first + _PIXELS)
    return split, _planes(rows[:, first:]), rows[:, first - 1]
  if kind == 'tfds':
    read = _array_records if '.array_record-' in name else _tfrecords
    found = [tf_example_pb2.Example.FromString(record).features.feature
             for record in read(data)]
    return (split, [_decoded(f['image'].bytes_list.value[0]) for f in found],
            [f['label'].int64_list.value[0] for f in found])
  split, label, _ = _FILE.fullmatch(path).groups()
  return split.lower(), [_decoded(data)], [CLASSES.index(label.lower())]


class _Unpickler(pickle.Unpickler):
  """Loads arrays and plain values; refuses to call any other function."""

  _ALLOWED = {('numpy.core.multiarray', '_reconstruct'), ('numpy', 'ndarray'),
              ('numpy', 'dtype')}

  def find_class(self, module, name):
    if (module, name) not in self._ALLOWED:
      raise pickle.UnpicklingError(f'it asks for {module}.{name}')
    if name == '_reconstruct':
      module = 'numpy._core.multiarray'
    return super().find_class(module, name)


def _planes(pixels):
  # A row of pixels has a plane for each colour.
  images = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
  return map(np.ascontiguousarray, images)


def _decoded(data):
  with Image.open(io.BytesIO(data)) as image:
    if image.size != (SIDE, SIDE):
      raise ValueError('it has {} x {} pixels'.format(*image.size))
    return encode.pixels(image, 'RGB')


def _tfrecords(data):
  """Yields records: length (8 bytes), its checksum (4), data, checksum (4)."""
  place = 0
  while place < len(data):
    length = int.from_bytes(data[place:place + 8], 'little')
    record = data[place + 12:place + 12 + length]
    if len(record) < length:
      raise EOFError('it ends within a record')
    yield record
    place += length + 16


def _array_records(data):
  with tempfile.NamedTemporaryFile() as f:  # the reader takes paths only
    f.write(data)
    f.flush()
    reader = array_record_module.ArrayRecordReader(f.name)
    yield from reader.read_all()
    reader.close()
