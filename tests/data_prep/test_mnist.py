"""Tests reading MNIST from its idx files, intact and damaged."""

import gzip
import struct

import numpy as np
import pytest

from lra import data_prep
from lra.data import prepared
from lra.data_prep import __main__ as command
from lra.data_prep import image, mnist
from tests.helpers import damage
from tests.helpers.data_files import labelled, refused

COUNTS = {'train': 60, 'test': 20}
NAMES = {'train': 'train', 'test': 't10k'}


@pytest.fixture
def examples(monkeypatch):
  """Makes random images: split -> (uint8 [N, 28, 28], labels)."""
  monkeypatch.setattr(mnist, 'COUNTS', COUNTS)
  monkeypatch.setattr(image, 'VAL_IMAGES', 20)
  rng = np.random.default_rng(0)
  return {split: (rng.integers(0, 256, (n, 28, 28), np.uint8),
                  rng.permutation(np.arange(n) % 10))
          for split, n in COUNTS.items()}


def write(folder, examples, packed=False):
  """Writes the four files of LeCun, Cortes and Burges."""
  folder.mkdir()
  for split, (images, labels) in examples.items():
    for name, data in {
        'images-idx3': struct.pack('>4I', 0x803, len(images), 28, 28)
                       + images.tobytes(),
        'labels-idx1': struct.pack('>2I', 0x801, len(labels))
                       + bytes(labels.tolist())}.items():
      path = folder / f'{NAMES[split]}-{name}-ubyte{".gz" if packed else ""}'
      path.write_bytes(gzip.compress(data) if packed else data)
  return folder


@pytest.mark.parametrize('packed', [False, True])
def test_digits_keep_their_pixels_and_class(tmp_path, examples, packed):
  splits = prepared.load('mnist', tmp_path / 'data', write(
      tmp_path / 'source', examples, packed)).splits
  assert [len(split) for split in splits.values()] == [40, 20, 20]
  assert np.bincount(splits['val'].labels).tolist() == [2] * 10
  for names, (images, labels) in zip(
      (('train', 'val'), ('test',)), examples.values(), strict=True):
    assert labelled(*(splits[name] for name in names)) == {
        (pixels.tobytes(), label) for pixels, label in
        zip(images, labels.tolist(), strict=True)}


@pytest.mark.parametrize('name, change, sentence', [
    ('t10k-labels-idx1-ubyte', lambda d: d[:-1] + b'\x0a', 'a label is 10'),
    ('train-images-idx3-ubyte', lambda d: d[:2] + b'\x09' + d[3:],  # int8
     'header of uint8 60 x 28 x 28'),
    ('train-labels-idx1-ubyte', lambda data: b'', 'header of uint8 60)'),
    ('train-images-idx3-ubyte', lambda data: data[:-1], 'less than 47,056'),
    ('t10k-images-idx3-ubyte', lambda data: data + b'.', 'more than 15,696'),
    ('t10k-images-idx3-ubyte', None, 'has no t10k-images-idx3-ubyte: '),
    ('train-images-idx3-ubyte.gz', -6, 'CRC'),
    ('train-images-idx3-ubyte.gz', 40, '')])
def test_a_wrong_file_is_one_sentence_and_leaves_no_data(
    tmp_path, examples, capsys, name, change, sentence):
  source = write(tmp_path / 'source', examples, name.endswith('.gz'))
  if change is None:
    (source / name).unlink()
  elif isinstance(change, int):
    damage.flip_a_bit(source / name, change)
  else:
    (source / name).write_bytes(change((source / name).read_bytes()))
  error = refused(capsys, 'mnist', source, tmp_path / 'data')
  assert sentence in error and name in error
  assert not (tmp_path / 'data').exists()


def test_other_files_are_another_source(tmp_path, examples, capsys):
  plain = write(tmp_path / 'source', examples)
  data_prep.prepare('mnist', tmp_path / 'data', plain)
  data_prep.prepare('mnist', tmp_path / 'data', plain)
  assert not command.main([
      '--task=mnist', f'--data_dir={tmp_path / "data"}', '--baselines',
      f'--baselines_dir={tmp_path / "baselines"}'])
  assert 'ridge on pixels' in capsys.readouterr().out
  packed = write(tmp_path / 'packed', examples, True)
  assert command.main(['--task=mnist', f'--data_dir={tmp_path / "data"}',
                       f'--source={packed}']) == 2
