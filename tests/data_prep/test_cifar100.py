"""Tests reading CIFAR-100 from its two official formats and that of TFDS."""

import numpy as np
import pytest

from lra import data_prep
from lra.core.errors import UserError
from lra.data import prepared
from lra.data_prep import __main__ as command
from lra.data_prep import cifar, image
from tests.helpers.cifar_files import (
  batch_of,
  record_of,
  tfrecord_of,
  write_archive,
  write_folder,
)

COUNTS = {'train': 200, 'test': 100}


@pytest.fixture
def examples(monkeypatch):
  """Makes random images: split -> (uint8 [N, 32, 32, 3], labels)."""
  monkeypatch.setattr(cifar, 'COUNTS', COUNTS)
  monkeypatch.setattr(image, 'VAL_IMAGES', 100)
  rng = np.random.default_rng(0)
  return {split: (rng.integers(0, 256, (n, 32, 32, 3), np.uint8),
                  rng.permutation(np.arange(n) % 100))
          for split, n in COUNTS.items()}


def files_of(kind, examples):
  """Returns the files of a version, name -> bytes."""
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
      files[f'cifar-100-binary/{split}.bin'] = b''.join(
          bytes([c, f]) + pixels.transpose(2, 0, 1).tobytes()
          for pixels, c, f in zip(images, coarse, fine, strict=True))
  return files


@pytest.mark.parametrize('write', [write_archive, write_folder])
@pytest.mark.parametrize('kind', ['python', 'binary', 'tfds'])
def test_each_version_gives_its_images_and_fine_labels(
    tmp_path, examples, kind, write):
  data = prepared.load('cifar100', tmp_path / 'data', write(
      tmp_path / 'source', files_of(kind, examples)))
  assert data.info['origin'] == f'CIFAR-100, images stored as {kind}'
  assert {name: len(split) for name, split in data.splits.items()} == {
      'train': 100, 'val': 100, 'test': 100}
  assert np.bincount(data.splits['val'].labels).tolist() == [1] * 100
  seen = {name: {(split.document(i), int(split.labels[i]))
                 for i in range(len(split))}
          for name, split in data.splits.items()}
  for name, (images, fine) in examples.items():
    want = {(image.grey(pixels).tobytes(), int(label)) for pixels, label in
            zip(images, fine, strict=True)}
    assert want == (seen['test'] if name == 'test' else
                    seen['train'] | seen['val'])


def mislabel(files):
  files['cifar-100-binary/test.bin'] = (
      b'\0\x64' + files['cifar-100-binary/test.bin'][2:])


def shorten(files):
  files['cifar-100-binary/train.bin'] = files['cifar-100-binary/train.bin'][1:]


def lose(files):
  del files['cifar-100-binary/test.bin']


@pytest.mark.parametrize('change, sentence', [
    (mislabel, 'test.bin is damaged (a label is 100)'),
    (shorten, 'train.bin is damaged'),
    (lose, 'has 0 images of test instead of 100'),
    (dict.clear, 'no images of CIFAR-100: --source must be cifar-100-python')])
def test_a_wrong_source_is_one_sentence_and_leaves_no_data(
    tmp_path, examples, capsys, change, sentence):
  files = files_of('binary', examples)
  change(files)
  source = write_archive(tmp_path / 'source', files)
  assert command.main(['--task=cifar100', f'--source={source}',
                       f'--data_dir={tmp_path / "data"}']) == 2
  error = capsys.readouterr().err.rpartition('\r')[2].strip().splitlines()
  assert error[-1].startswith('error: ') and sentence in error[-1]
  assert [p.name for p in tmp_path.iterdir()] == ['source']


def test_it_is_not_taken_for_cifar_10(tmp_path, examples):
  source = write_archive(tmp_path / 'a', files_of('binary', examples))
  with pytest.raises(UserError, match='no images of CIFAR-10: '):
    data_prep.prepare('image', tmp_path / 'data', source)
  assert '/cifar-100-binary.tar.gz' in next(iter(
      data_prep.make_builder('cifar100', tmp_path).url_infos))
  assert '/cifar-10-python.tar.gz' in next(iter(
      data_prep.make_builder('image', tmp_path).url_infos))
