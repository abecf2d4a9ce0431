"""Tests reading CIFAR-10 and CIFAR-100 from each of their file formats."""

import pickle

import numpy as np
import pytest
from array_record.python import array_record_module
from PIL import Image

from lra import data_prep
from lra.core.errors import UserError
from lra.data import prepared
from lra.data_prep import __main__ as command
from lra.data_prep import cifar, image
from lra.data_prep.source import Source
from tests.helpers.data_files import (
  batch_of,
  encoded,
  labelled,
  record_of,
  refused,
  tfrecord_of,
  write_archive,
  write_folder,
)

# (colour, grey value) by tf.image.rgb_to_grayscale of TensorFlow 2.21.
GREYS = [((95, 130, 194), 127), ((217, 207, 235), 213), ((15, 163, 33), 104),
         ((215, 217, 130), 206), ((248, 189, 16), 187), ((69, 184, 232), 155),
         ((205, 78, 169), 126), ((61, 125, 10), 92), ((29, 240, 66), 157),
         ((19, 182, 39), 117), ((0, 0, 0), 0), ((255, 255, 255), 255)]


def drawn(monkeypatch, counts, val):
  """Makes random images: split -> (uint8 [N, 32, 32, 3], labels).

  There are as many classes as images of test.
  """
  monkeypatch.setattr(cifar, 'COUNTS', counts)
  monkeypatch.setattr(image, 'VAL_IMAGES', val)
  rng = np.random.default_rng(0)
  return {split: (rng.integers(0, 256, (n, 32, 32, 3), np.uint8),
                  rng.permutation(np.arange(n) % counts['test']))
          for split, n in counts.items()}


@pytest.fixture
def ten(monkeypatch):
  return drawn(monkeypatch, {'train': 40, 'test': 10}, 10)


@pytest.fixture
def hundred(monkeypatch):
  return drawn(monkeypatch, {'train': 200, 'test': 100}, 100)


def binary_of(images, *labels):
  planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
  return np.concatenate([*(of[:, None].astype(np.uint8) for of in labels),
                         planes], 1).tobytes()


def array_record_of(records, path):
  writer = array_record_module.ArrayRecordWriter(str(path), 'group_size:1')
  for data in records:
    writer.write(data)
  writer.close()
  return path.read_bytes()


def files_of(kind, examples, scratch=None):
  """Returns the files of CIFAR-10 in the format `kind`, name -> bytes."""
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


def files_of_hundred(kind, examples, scratch=None):
  del scratch
  files = {f'cifar-100-{kind}/meta': b'', f'cifar-100-{kind}/file.txt~': b''}
  for split, (images, fine) in examples.items():
    coarse = fine // 5
    if kind == 'python':
      files[f'cifar-100-python/{split}'] = batch_of(
          images, coarse_labels=coarse, fine_labels=fine)
    elif kind == 'tfds':
      files[f'3.0.2/cifar100-{split}.tfrecord-00000-of-00001'] = tfrecord_of(
          map(record_of, images, fine))
    else:
      files[f'cifar-100-binary/{split}.bin'] = binary_of(images, coarse, fine)
  return files


def made(path, mini=False):
  images, stored = cifar.read(Source(path))
  return image.content(images, stored, (
      lambda x: image.quarter(image.grey(x))) if mini else image.grey)


@pytest.mark.parametrize('task, kind', [
    *(('image', kind) for kind in (
        'python', 'binary', 'tfrecord', 'array_record', 'png')),
    *(('cifar100', kind) for kind in ('python', 'binary', 'tfds'))])
def test_every_form_gives_the_same_data(tmp_path, request, task, kind):
  """Every file format gives the split, grey images of the original arrays."""
  examples = request.getfixturevalue('ten' if task == 'image' else 'hundred')
  files = (files_of if task == 'image' else files_of_hundred)(
      kind, examples, tmp_path)
  folder = write_folder(tmp_path / 'folder', files)
  data = prepared.load(task, tmp_path / 'data', folder)
  assert data.info['origin'].endswith(
      f' stored as {"tfds" if "record" in kind else kind}')
  assert {name: len(split) for name, split in data.splits.items()} == {
      'train': 30 if task == 'image' else 100,
      **dict.fromkeys(('val', 'test'), len(examples['test'][0]))}
  assert set(np.bincount(data.splits['val'].labels)) == {1}
  for names, (images, labels) in zip(
      (('train', 'val'), ('test',)), examples.values(), strict=True):
    assert labelled(*(data.splits[name] for name in names)) == {
        (image.grey(pixels).tobytes(), label) for pixels, label in
        zip(images, labels.tolist(), strict=True)}
  edition = cifar.CIFAR10 if task == 'image' else cifar.CIFAR100
  packed = Source(write_archive(tmp_path / 'archive', files))
  for split, found in cifar.read(packed, edition)[0].items():
    assert {(pixels.tobytes(), label) for pixels, label in found} == {
        (pixels.tobytes(), label) for pixels, label in
        zip(examples[split][0], examples[split][1].tolist(), strict=True)}


def test_grey_is_that_of_the_released_code():
  colours, greys = zip(*GREYS, strict=True)
  assert image.grey(np.uint8(colours)).tolist() == list(greys)


def test_mini_images_are_means_of_four_pixels(tmp_path, ten):
  write_folder(tmp_path, files_of('binary', ten))
  small, large = (
      np.frombuffer(made(tmp_path, mini).splits['test'].document(3), np.uint8)
      for mini in (True, False))
  means = large.reshape(16, 2, 16, 2).mean((1, 3)).reshape(-1)
  assert (np.abs(small - means) <= 0.5).all()


def evil(files):
  class Call:
    def __reduce__(self):
      return (print, ('called',))
  files['cifar-10-batches-py/data_batch_1'] = pickle.dumps(
      {b'data': Call(), b'labels': []}, 2)


def change(name, alter):
  """Returns a function that alters the bytes of the first file called so."""
  def changed(files):
    path = next(n for n in files if name in n)
    files[path] = alter(files[path])
  return changed


def shorten(name):
  return change(name, lambda data: data[:-100])


def remove(files):
  files.pop(next(iter(files)))


def mix(files):
  files.pop(next(n for n in files if n.endswith('.png')))
  files['cifar10/train/dog/x.jpg'] = encoded(
      np.zeros((32, 32, 3), np.uint8), 'JPEG')


@pytest.mark.parametrize('task, kind, spoil, sentence', [
    ('image', 'python', evil, 'data_batch_1 is damaged (it asks for '),
    ('image', 'python', shorten('data_batch_2'), 'data_batch_2 is damaged'),
    ('image', 'binary', shorten('data_batch_3'), 'data_batch_3.bin is damaged'),
    ('image', 'binary', change('test_batch', lambda d: b'\x0b' + d[1:]),
     'test_batch.bin is damaged (a label is 11)'),
    ('image', 'tfrecord', shorten('00002-of-'), '00002-of-00005 is damaged'),
    ('image', 'tfrecord', change('test', lambda d: d.replace(
        b'image', b'\xff' * 5)), '00000-of-00001 is damaged'),
    ('image', 'png', remove, 'has 39 images of train instead of 40'),
    ('image', 'png', change('', lambda _: encoded(
        np.zeros((8, 9, 3), np.uint8), 'PNG')),
     'is damaged (it has 9 x 8 pixels)'),
    ('image', 'png', dict.clear,
     'has no images of CIFAR-10: --source of image must be cifar-10'),
    ('image', 'png', mix, 'mixes jpeg and png images'),
    ('cifar100', 'binary', change('test.bin', lambda d: b'\0\x64' + d[2:]),
     'test.bin is damaged (a label is 100)'),
    ('cifar100', 'binary', dict.clear, 'no images of CIFAR-100: --source of '
     'cifar100 must be cifar-100-python')])
def test_what_is_wrong_is_named_and_leaves_no_data(
    tmp_path, request, capsys, task, kind, spoil, sentence):
  if task == 'image':
    files = files_of(kind, request.getfixturevalue('ten'))
  else:
    files = files_of_hundred(kind, request.getfixturevalue('hundred'))
  spoil(files)
  for write in (write_archive, write_folder):
    source = write(tmp_path / write.__name__, {'readme.html': b'', **files})
    error = refused(capsys, task, source, tmp_path / 'data')
    assert sentence in error and 'called' not in error
    assert not (tmp_path / 'data').exists()


def test_describe_draws_a_sheet_of_the_first_examples(tmp_path, ten, capsys):
  write_folder(tmp_path, files_of('png', ten))
  assert command.main([
      '--task=image', f'--source={tmp_path / "cifar10"}', '--describe',
      f'--data_dir={tmp_path / "data"}']) == 0
  first = made(tmp_path / 'cifar10').splits['train'].document(0)
  with Image.open(tmp_path / 'data' / 'image' / 'lra' / 'examples.png') as f:
    sheet = np.asarray(f)
  assert any(sheet[y:y + 96:3, x:x + 96:3].tobytes() == first
             for y in range(30) for x in range(20))


def test_cifar_100_is_not_taken_for_cifar_10(tmp_path, hundred):
  source = write_archive(tmp_path / 'a', files_of_hundred('binary', hundred))
  with pytest.raises(UserError, match='no images of CIFAR-10: '):
    data_prep.prepare('image', tmp_path / 'data', source)
