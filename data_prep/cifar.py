"""Reads the RGB images and labels of CIFAR-10 or CIFAR-100.

A source is an official archive (python or binary version) or its unpacked
folder, or a data set prepared by TFDS. For CIFAR-10 it may also be a folder or
an archive of image files, with one folder per class. Labels of CIFAR-100 are
the fine ones.
"""

import collections
import dataclasses
import io
import os
import pathlib
import pickle
import re
from collections.abc import Iterator

import numpy as np
from PIL import Image

from lra.core.errors import UserError
from lra.core.terminal import progress
from lra.data_prep import archives, pictures

CLASSES = ('airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog',
           'horse', 'ship', 'truck')
SIDE = 32
COUNTS = {'train': 50_000, 'test': 10_000}

_PIXELS = 3 * SIDE * SIDE
_LARGEST = 1 << 28  # bytes of an archive's member; larger ones raise an error
_FILE = re.compile(
    rf'(?:.*/)?(train|test)/({"|".join(CLASSES)})/[^/]+\.(png|jpg|jpeg)',
    re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Edition:
  """CIFAR-10 or CIFAR-100.

  Attributes:
    title: its name.
    classes: number of classes.
    batches: regular expression of the names of its files with images, in the
      python version; the binary version adds `.bin`.
    labels: key of the labels in the python version.
    label_bytes: bytes before each image in the binary version. The last one of
      them is the label.
    others: further sources, for errors.
  """
  title: str
  classes: int
  batches: str
  labels: bytes
  label_bytes: int
  others: str = ''

  @property
  def layouts(self) -> str:
    """Returns which sources there are, for errors."""
    name = self.title.lower()
    return (f'--source must be {name}-python.tar.gz, {name}-binary.tar.gz, '
            f'{name.replace("-", "")} as prepared by TFDS, or a folder '
            f'{self.others}')


CIFAR10 = Edition('CIFAR-10', 10, r'data_batch_[1-5]|test_batch', b'labels', 1,
                  'or archive with folders of images, train/airplane and so on')
CIFAR100 = Edition('CIFAR-100', 100, 'train|test', b'fine_labels', 2,
                   'of its files')


def read(source: pathlib.Path, edition: Edition = CIFAR10
         ) -> tuple[dict[str, list], str]:
  """Reads all images of an archive or a directory.

  Returns:
    A dict with the images of 'train' and 'test', each a list of (uint8
    [32, 32, 3], label). And the format in which they were stored: 'python',
    'binary', 'tfds', 'png' or 'jpeg'.

  Raises:
    UserError: the source is missing or damaged, or images are missing.
  """
  found = {split: [] for split in COUNTS}
  kinds = collections.Counter()
  bar = progress(total=sum(COUNTS.values()), unit=' images',
                 desc=f'reading {source.name}')
  with bar:
    for path, data in _files(source, edition):
      kind, split, images = _images(path, data, edition)
      found[split] += images
      kinds[kind] += len(images)
      bar.update(len(images))
  if not kinds:
    raise UserError(
        f'{source} has no images of {edition.title}: {edition.layouts}.')
  for split, count in COUNTS.items():
    if len(found[split]) != count:
      raise UserError(
          f'{source} has {len(found[split]):,} images of {split} instead of '
          f'{count:,}: download or unpack it again.')
  if len(kinds) > 1:
    raise UserError(f'{source} mixes {" and ".join(sorted(kinds))} images: '
                    'keep one kind.')
  return found, *kinds


def identify(source: pathlib.Path, edition: Edition = CIFAR10
             ) -> dict[str, int]:
  """Returns sizes by which sources differ.

  They are {name: bytes} of an archive, or number and bytes of a folder's files.
  """
  if not source.is_dir():
    return {source.name: source.stat().st_size}
  sizes = [path.stat().st_size for path, _ in _in_folder(source, edition)]
  return {'files': len(sizes), 'bytes': sum(sizes)}


def _in_folder(source, edition) -> Iterator[tuple[pathlib.Path, str]]:
  """Yields (path, name) of each file with images; follows symbolic links."""
  for folder, folders, files in os.walk(source, followlinks=True):
    folders.sort()
    for file in sorted(files):
      path = pathlib.Path(folder, file)
      name = path.relative_to(source.parent).as_posix()
      if _kind(name, edition) and path.is_file() and (
          not archives.is_apple_double(name)):
        yield path, name


def _files(source, edition) -> Iterator[tuple[str, bytes]]:
  """Yields (name, content) of each file with images."""
  if source.is_dir():
    for path, name in _in_folder(source, edition):
      try:
        yield name, path.read_bytes()
      except OSError as e:
        raise UserError(f'{path} cannot be read ({e.strerror}): unpack the '
                        'images again.') from e
    return
  yield from archives.files(source, lambda m: _wanted(source, m, edition))


def _wanted(source, member, edition):
  """Returns whether a member of an archive has images."""
  wanted = bool(_kind(member.name, edition))
  if wanted and member.size > _LARGEST:
    raise UserError(
        f'{source} has a file {member.name} of {member.size:,} bytes, which '
        f'is no image of {edition.title}: download it again.')
  return wanted


def _kind(path, edition):
  """Returns the format of a file from its name; '' if it has no images."""
  name = path.rpartition('/')[2]
  match = re.fullmatch(rf'(?:{edition.batches})(\.bin)?', name)
  if match:
    return 'binary' if match.group(1) else 'python'
  if re.fullmatch(rf'cifar{edition.classes}-(train|test)\.'
                  r'(tfrecord|array_record)-\d+-of-\d+', name):
    return 'tfds'
  match = _FILE.fullmatch(path)
  if match and edition is CIFAR10:
    return 'png' if match.group(3).lower() == 'png' else 'jpeg'
  return ''


def _images(path, data, edition):
  """Returns the format, split and [(image, label), ...] of a file."""
  kind = _kind(path, edition)
  split = 'test' if 'test' in path.rpartition('/')[2] else 'train'
  try:
    if kind == 'python':
      return kind, split, list(_of_python(data, edition))
    if kind == 'binary':
      return kind, split, list(_of_binary(data, edition))
    if kind == 'tfds':
      return kind, split, list(_of_tfds(path, data, edition))
    split, label, _ = _FILE.fullmatch(path).groups()
    return kind, split.lower(), [
        (_decoded(data), CLASSES.index(label.lower()))]
  except Exception as e:  # decoders raise any exception for damaged bytes
    raise UserError(f'{path} is damaged ({e}): download or unpack it again.'
                    ) from e


def _of_python(data, edition):
  batch = _Unpickler(io.BytesIO(data), encoding='bytes').load()
  return _planes(np.asarray(batch[b'data'], np.uint8), batch[edition.labels],
                 edition)


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


def _of_binary(data, edition):
  first = edition.label_bytes
  rows = np.frombuffer(data, np.uint8).reshape(-1, first + _PIXELS)
  return _planes(rows[:, first:], rows[:, first - 1], edition)


def _planes(pixels, labels, edition):
  """Yields (image, label); a row of `pixels` has one plane for each colour."""
  images = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
  for image, label in zip(images, labels, strict=True):
    yield np.ascontiguousarray(image), _label(label, edition)


def _label(number, edition):
  """Returns a label as int; raises ValueError if it is not a class number."""
  if number not in range(edition.classes):
    raise ValueError(f'a label is {number}')
  return int(number)


def _decoded(data):
  with Image.open(io.BytesIO(data)) as image:
    if image.size != (SIDE, SIDE):
      raise ValueError('it has {} x {} pixels'.format(*image.size))
    return pictures.pixels(image, 'RGB')


def _of_tfds(path, data, edition):
  from tensorflow_datasets.proto import tf_example_pb2
  for record in _records(path, data):
    feature = tf_example_pb2.Example.FromString(record).features.feature
    yield (_decoded(feature['image'].bytes_list.value[0]),
           _label(feature['label'].int64_list.value[0], edition))


def _records(path, data):
  """Yields the records of a TFDS file."""
  if '.array_record-' not in path:
    # TFRecord: length (8 bytes), its checksum (4), data, their checksum (4).
    place = 0
    while place < len(data):
      length = int.from_bytes(data[place:place + 8], 'little')
      record = data[place + 12:place + 12 + length]
      if len(record) < length:
        raise EOFError('it ends within a record')
      yield record
      place += length + 16
    return
  import tempfile

  from array_record.python import array_record_module
  with tempfile.NamedTemporaryFile() as f:  # the reader takes paths only
    f.write(data)
    f.flush()
    reader = array_record_module.ArrayRecordReader(f.name)
    yield from reader.read_all()
    reader.close()
