"""Tests reading CIFAR-10 from each of its file formats, intact and damaged."""

import pickle
import struct
import tarfile
import zlib

import numpy as np
import pytest
from array_record.python import array_record_module
from PIL import Image

from lra import data_prep
from lra.core.errors import UserError
from lra.data import prepared
from lra.data_prep import __main__ as command
from lra.data_prep import cifar, image
from lra.data_prep.content import fingerprint
from tests.helpers import damage
from tests.helpers.cifar_files import (
  batch_of,
  encoded,
  record_of,
  tfrecord_of,
  write_archive,
  write_folder,
)

COUNTS = {'train': 40, 'test': 10}
# (colour, grey value) by tf.image.rgb_to_grayscale of TensorFlow 2.21.
GREYS = [((95, 130, 194), 127), ((217, 207, 235), 213), ((15, 163, 33), 104),
         ((215, 217, 130), 206), ((248, 189, 16), 187), ((69, 184, 232), 155),
         ((205, 78, 169), 126), ((61, 125, 10), 92), ((29, 240, 66), 157),
         ((19, 182, 39), 117), ((0, 0, 0), 0), ((255, 255, 255), 255)]


@pytest.fixture
def examples(monkeypatch):
  """Makes random images: split -> (uint8 [N, 32, 32, 3], labels)."""
  monkeypatch.setattr(cifar, 'COUNTS', COUNTS)
  monkeypatch.setattr(image, 'VAL_IMAGES', 10)
  rng = np.random.default_rng(0)
  return {split: (rng.integers(0, 256, (n, 32, 32, 3), np.uint8),
                  np.arange(n) % 10) for split, n in COUNTS.items()}


def binary_of(images, labels):
  planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
  return np.concatenate(
      [labels[:, None].astype(np.uint8), planes], 1).tobytes()


def array_record_of(records, path):
  writer = array_record_module.ArrayRecordWriter(str(path), 'group_size:1')
  for data in records:
    writer.write(data)
  writer.close()
  return path.read_bytes()


def files_of(kind, examples, scratch=None):
  """Returns the files of a source in the format `kind`, name -> bytes."""
  files = {}
  for split, (images, labels) in examples.items():
    parts = np.array_split(np.arange(len(labels)), 5 if split == 'train' else 1)
    for i, part in enumerate(parts, 1):
      name = f'data_batch_{i}' if split == 'train' else 'test_batch'
      if kind == 'python':
        files[f'cifar-10-batches-py/{name}'] = batch_of(
            images[part], labels=labels[part])
      elif kind == 'binary':
        files[f'cifar-10-batches-bin/{name}.bin'] = binary_of(
            images[part], labels[part])
      elif kind in ('tfrecord', 'array_record'):
        shard = f'cifar10-{split}.{kind}-{i - 1:05}-of-{len(parts):05}'
        records = [record_of(images[k], labels[k]) for k in part]
        files[f'3.0.2/{shard}'] = (
            tfrecord_of(records) if kind == 'tfrecord' else
            array_record_of(records, scratch / 'records'))
      else:
        for k in part:
          folder = f'cifar10/{split}/{cifar.CLASSES[labels[k]]}'
          files[f'{folder}/{k:04}.{"jpg" if kind == "jpeg" else kind}'] = (
              encoded(images[k], kind.upper()))
  return files


def made(source, mini=False):
  images, stored = cifar.read(source)
  return image.content(images, stored, (
      lambda x: image.quarter(image.grey(x))) if mini else image.grey), stored


@pytest.mark.parametrize('write', [write_archive, write_folder])
@pytest.mark.parametrize('kind', [
    'python', 'binary', 'tfrecord', 'array_record', 'png'])
def test_every_form_gives_the_same_data(tmp_path, examples, kind, write):
  """Every file format gives the split, grey images of the original arrays."""
  content, stored = made(write(
      tmp_path / 'source', files_of(kind, examples, tmp_path)))
  assert stored == ('tfds' if 'record' in kind else kind)
  pairs = {split: list(zip(*part, strict=True))
           for split, part in examples.items()}
  assert fingerprint(content.splits) == fingerprint(
      image.content(pairs, kind, image.grey).splits)
  assert [len(content.splits[s]) for s in ('train', 'val', 'test')] == [
      30, 10, 10]
  assert np.bincount(content.splits['val'].labels).tolist() == [1] * 10
  seen = {split.document(i): split.labels[i]
          for split in content.splits.values() for i in range(len(split))}
  for split, (images, labels) in examples.items():
    for pixels, label in zip(image.grey(images), labels, strict=True):
      assert seen[pixels.tobytes()] == label, split


def test_jpeg_copies_are_said(tmp_path, examples):
  source = write_archive(tmp_path / 'a', files_of('jpeg', examples))
  data = prepared.load('image', tmp_path / 'data', source)
  assert 'stored as jpeg' in data.info['origin']


def test_grey_is_that_of_the_released_code():
  colours, greys = zip(*GREYS, strict=True)
  assert image.grey(np.uint8(colours)).tolist() == list(greys)


def test_mini_images_are_means_of_four_pixels(tmp_path, examples):
  content, _ = made(write_folder(tmp_path, files_of('binary', examples)), True)
  large, _ = made(write_folder(tmp_path, files_of('binary', examples)))
  small = np.frombuffer(content.splits['test'].document(3), np.uint8)
  whole = np.frombuffer(large.splits['test'].document(3), np.uint8)
  whole = whole.reshape(32, 32).astype(float)
  for y in range(16):
    for x in range(16):
      mean = whole[2 * y:2 * y + 2, 2 * x:2 * x + 2].mean()
      assert abs(small[16 * y + x] - mean) <= 0.5


def evil(files):
  class Call:
    def __reduce__(self):
      return (print, ('called',))
  files['cifar-10-batches-py/data_batch_1'] = pickle.dumps(
      {b'data': Call(), b'labels': []}, 2)


def shorten(name):
  def change(files):
    path = next(n for n in files if n.endswith(name))
    files[path] = files[path][:-100]
  return change


def remove(files):
  files.pop(next(iter(files)))


def mislabel(files):
  path = 'cifar-10-batches-bin/test_batch.bin'
  files[path] = b'\x0b' + files[path][1:]


def garble(files):
  path = next(n for n in files if 'test' in n)
  files[path] = files[path].replace(b'image', b'\xff\xff\xff\xff\xff')


def relabel(label):
  """Returns a change that adds a test image with the label `label`."""
  def change(files):
    path = next(n for n in files if 'test' in n)
    files[path] = tfrecord_of([record_of(
        np.zeros((32, 32, 3), np.uint8), label)]) + files[path]
  return change


def swell(files):
  """Makes a PNG's header state a billion pixels."""
  path = next(n for n in files if n.endswith('.png'))
  size = struct.pack('>4s2I5B', b'IHDR', 31_623, 31_623, 8, 2, 0, 0, 0)
  files[path] = (files[path][:12] + size
                 + struct.pack('>I', zlib.crc32(size)) + files[path][33:])


def enlarge(files):
  path = next(iter(files))
  files[path] = encoded(np.zeros((8, 9, 3), np.uint8), 'PNG')


def deepen(files):
  """Replaces an image by 16-bit grey, which Pillow would clip to 8 bits."""
  path = next(iter(files))
  files[path] = encoded(np.full((32, 32), 4000, np.uint16), 'PNG')


def mix(files):
  path = next(n for n in files if n.endswith('.png'))
  del files[path]
  files[path.replace('.png', '.jpg')] = encoded(
      np.zeros((32, 32, 3), np.uint8), 'JPEG')


@pytest.mark.parametrize('kind, change, sentence', [
    ('python', evil, 'data_batch_1 is damaged (it asks for '),
    ('python', shorten('data_batch_2'), 'data_batch_2 is damaged'),
    ('binary', shorten('data_batch_3.bin'), 'data_batch_3.bin is damaged'),
    ('binary', mislabel, 'test_batch.bin is damaged (a label is 11)'),
    ('tfrecord', shorten('00002-of-00005'), '00002-of-00005 is damaged'),
    ('tfrecord', garble, '00000-of-00001 is damaged'),
    ('tfrecord', relabel(10), '00000-of-00001 is damaged (a label is 10)'),
    ('tfrecord', relabel(-1), '00000-of-00001 is damaged (a label is -1)'),
    ('tfrecord', relabel(2**40), f'is damaged (a label is {2**40})'),
    ('png', shorten('0007.png'), '0007.png is damaged'),
    ('png', remove, 'has 39 images of train instead of 40'),
    ('png', enlarge, 'is damaged (it has 9 x 8 pixels)'),
    ('png', swell, '.png is damaged ('),
    ('png', deepen, '.png is damaged (it has more than 8 bits a colour)'),
    ('png', dict.clear, 'has no images of CIFAR-10: --source must be cifar-10'),
    ('png', mix, 'mixes jpeg and png images'),
])
def test_what_is_wrong_is_named(tmp_path, examples, capsys, kind, change,
                                sentence):
  files = files_of(kind, examples)
  change(files)
  with pytest.raises(UserError) as caught:
    made(write_archive(tmp_path / 'source', files))
  assert sentence in str(caught.value)
  assert '\n' not in str(caught.value)
  assert 'called' not in capsys.readouterr().out


def test_the_checksum_behind_the_last_image_is_compared(tmp_path, examples):
  path = write_archive(tmp_path / 'a.tar.gz', files_of('png', examples))
  damage.flip_a_bit(path, -8)
  with pytest.raises(UserError, match='a.tar.gz is damaged .*CRC'):
    cifar.read(path)


@pytest.mark.parametrize('write', [write_archive, write_folder])
@pytest.mark.parametrize('kind', ['python', 'binary', 'tfrecord', 'png'])
def test_files_that_macos_leaves_are_passed_over(tmp_path, examples, kind,
                                                 write):
  files = files_of(kind, examples)
  want = cifar.identify(write_folder(tmp_path / 'clean', files))
  beside = {f'{name.rpartition("/")[0]}/._{name.rpartition("/")[2]}':
            b'\0\5\x16\7Mac OS X' for name in files}
  source = write(tmp_path / 'source', files | beside)
  found, stored = cifar.read(source)
  assert {name: len(images) for name, images in found.items()} == COUNTS
  assert stored == ('tfds' if kind == 'tfrecord' else kind)
  if source.is_dir():
    assert cifar.identify(source) == want


def test_a_huge_member_is_not_read(tmp_path, examples):
  path = tmp_path / 'bomb.tar'
  member = tarfile.TarInfo('cifar-10-batches-py/data_batch_1')
  member.size = 1 << 40
  path.write_bytes(member.tobuf())
  with pytest.raises(UserError, match='1,099,511,627,776 bytes'):
    cifar.read(path)


@pytest.mark.parametrize('change, sentence', [
    (dict.clear, 'has no images of CIFAR-10: '),
    (remove, 'has 39 images of train instead of 40: '),
    (shorten('0007.png'), '0007.png is damaged (')])
def test_a_bad_source_is_one_sentence_and_leaves_no_data(
    tmp_path, examples, capsys, change, sentence):
  files = files_of('png', examples)
  change(files)
  write_folder(tmp_path / 'cifar10', {'readme.html': b'', **files})
  assert command.main(['--task=image', f'--source={tmp_path / "cifar10"}',
                       f'--data_dir={tmp_path / "data"}']) == 2
  error = capsys.readouterr().err.rpartition('\r')[2].strip().splitlines()
  assert error[-1].startswith('error: ') and sentence in error[-1]
  assert [p.name for p in tmp_path.iterdir()] == ['cifar10']


def test_another_source_is_not_taken_for_the_first(tmp_path, examples):
  write_folder(tmp_path / 'copies', files_of('jpeg', examples))
  first = write_archive(tmp_path / 'first.tar.gz', files_of('png', examples))
  data_prep.prepare('image', tmp_path / 'data', first)
  data_prep.prepare('image', tmp_path / 'data', first)
  data_prep.prepare('image', tmp_path / 'data')
  with pytest.raises(UserError, match='another source .*stored as png'):
    data_prep.prepare('image', tmp_path / 'data', tmp_path / 'copies')


def test_a_folder_with_other_images_is_another_source(tmp_path, examples):
  source = tmp_path / 'cifar10'
  write_folder(tmp_path, files_of('png', examples))
  data_prep.prepare('image', tmp_path / 'data', source)
  data_prep.prepare('image', tmp_path / 'data', source)
  path = next(source.rglob('*.png'))
  path.write_bytes(path.read_bytes() + b'.')
  with pytest.raises(UserError, match='another source'):
    data_prep.prepare('image', tmp_path / 'data', source)


def test_links_to_folders_are_followed(tmp_path, examples):
  files = files_of('png', examples)
  write_folder(tmp_path / 'there', files)
  (tmp_path / 'linked').mkdir()
  for split in COUNTS:
    (tmp_path / 'linked' / split).symlink_to(tmp_path / 'there/cifar10' / split)
  content, _ = made(tmp_path / 'linked')
  there, _ = made(tmp_path / 'there')
  assert fingerprint(content.splits) == fingerprint(there.splits)


def test_describe_draws_a_sheet_of_the_first_examples(
    tmp_path, examples, capsys):
  write_folder(tmp_path, files_of('png', examples))
  assert command.main([
      '--task=image', f'--source={tmp_path / "cifar10"}', '--describe',
      f'--data_dir={tmp_path / "data"}']) == 0
  assert 'origin: CIFAR-10, images stored as png' in capsys.readouterr().out
  content, _ = made(tmp_path / 'cifar10')
  with Image.open(tmp_path / 'data' / 'image' / 'lra' / 'examples.png') as f:
    drawn = np.asarray(f)
  first = np.frombuffer(content.splits['train'].document(0), np.uint8)
  found = [(y, x) for y in range(30) for x in range(20)
           if (drawn[y:y + 96:3, x:x + 96:3] == first.reshape(32, 32)).all()]
  assert found


def test_no_archive(tmp_path, examples):
  path = tmp_path / 'page.html'
  path.write_text('<html>')
  with pytest.raises(UserError, match='page.html is damaged or not an arch'):
    cifar.read(path)
