"""Tests reading Pathfinder from the folders of the LRA release."""

import shutil

import numpy as np
import pytest
from PIL import Image

from lra import data_prep
from lra.core.errors import UserError
from lra.data_prep import pathfinder
from tests.helpers.data_files import refused

LINE = 'imgs/{i} sample_{j}.png {j} {label} 1.8 14 4 5 1.5 2 1'


SIZES = (16, 2, 2)
OF_ALL = 'of 160,000/20,000/20,000 rows'


def write_official(folder, per_table=10, tables=2, side=32):
  """Writes metadata and images in the release's form; returns images, labels.
  """
  rng = np.random.default_rng(0)
  images, labels = [], []
  for i in range(1, tables + 1):
    lines = []
    (folder / 'metadata').mkdir(parents=True, exist_ok=True)
    (folder / f'imgs/{i}').mkdir(parents=True)
    for j in range(per_table):
      images.append(rng.integers(0, 256, (side, side), np.uint8))
      labels.append(int(rng.integers(2)))
      lines.append(LINE.format(i=i, j=j, label=labels[-1]))
      Image.fromarray(images[-1]).save(folder / f'imgs/{i}/sample_{j}.png')
    (folder / f'metadata/{i}.npy').write_text('\n'.join(lines) + '\n')
  return images, labels


def test_official_images_in_stored_order(tmp_path):
  """Tables are read in numerical order (10 after 9); the first 80% are train.
  """
  images, labels = write_official(tmp_path, per_table=2, tables=10)
  content = pathfinder.import_official(tmp_path, 32, SIZES)
  sizes = [len(content.splits[s]) for s in ('train', 'val', 'test')]
  assert sizes == [16, 2, 2]
  for place, (split, i) in {0: ('train', 0), 15: ('train', 15), 17: ('val', 1),
                            19: ('test', 1)}.items():
    assert content.splits[split].document(i) == images[place].tobytes()
    assert content.splits[split].labels[i] == labels[place]


def test_half_a_release_is_not_taken_for_the_whole(tmp_path, capsys):
  write_official(tmp_path)
  origins = [pathfinder.import_official(tmp_path, 32, sizes).info['origin']
             for sizes in (SIZES, (32, 4, 4))]
  assert origins[0].startswith('official images, ')
  assert origins[1] == f'{origins[0]}, 16/2/2 of 32/4/4 rows'
  assert capsys.readouterr().err.count('warning: ') == 1


def test_the_empty_image_of_the_release_is_left_out(tmp_path):
  folder = tmp_path / 'pathfinder32' / 'curv_baseline'
  write_official(folder)
  (folder / 'imgs/0').mkdir()
  (folder / 'imgs/0/sample_172.png').write_bytes(b'')
  (folder / 'metadata/0.npy').write_text(LINE.format(i=0, j=172, label=1))
  assert sum(map(len, pathfinder.import_official(
      folder, 32, SIZES).splits.values())) == 20


def test_files_that_are_no_tables_are_passed_over(tmp_path):
  write_official(tmp_path)
  for name in ('\u00b23.npy', 'notes.npy', '.hidden.npy', '._1.npy'):
    (tmp_path / 'metadata' / name).write_text('?')
  for name in ('imgs/._1', 'imgs/1/._sample_3.png'):
    (tmp_path / name).write_text('?')
  content = pathfinder.import_official(tmp_path, 32, SIZES)
  assert len(content.splits['train']) == 16


def test_too_few_images_for_each_split_are_named(tmp_path):
  folder = tmp_path / pathfinder.HARD
  write_official(folder, per_table=3, tables=1)
  with pytest.raises(UserError, match='too few examples: none .* for val'):
    data_prep.prepare('pathfinder', tmp_path / 'data', tmp_path)
  assert not (tmp_path / 'data').exists()


def break_line(text):
  def change(folder):
    path = folder / 'metadata' / '2.npy'
    lines = path.read_text().splitlines()
    lines[4] = text
    path.write_text('\n'.join(lines))
  return change


def truncate(folder):
  path = folder / 'imgs/1/sample_3.png'
  path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize('change, sentence', [
    (truncate, 'imgs/1/sample_3.png cannot be read'),
    (lambda f: (f / 'imgs/2/sample_0.png').write_bytes(b''),
     'imgs/2/sample_0.png cannot be read'),
    (lambda f: (f / 'imgs/2/sample_9.png').unlink(),
     'imgs/2/sample_9.png cannot be read (No such file or directory)'),
    (lambda f: Image.new('L', (64, 64)).save(f / 'imgs/1/sample_0.png'),
     'has 64 x 64 pixels instead of 32 x 32'),
    (lambda f: [p.unlink() for p in (f / 'metadata').iterdir()],
     'metadata has no tables'),
    (lambda f: (f / 'metadata/1.npy').write_bytes(b'\x93NUMPY\xff'),
     'metadata/1.npy, line 1: it is not the text of the release'),
    (break_line('imgs/2 sample_4.png'),
     'metadata/2.npy, line 5: 2 fields, none is the label'),
    (break_line(LINE.format(i=2, j=4, label=7)), 'line 5: the label is 7'),
    (lambda f: (f / 'metadata/1.npy').unlink(),
     'metadata/1.npy is missing, so that some images are in no table'),
    (lambda f: [shutil.rmtree(f / 'imgs/2'),
                (f / 'metadata/2.npy').rename(f / 'metadata/3.npy')],
     'metadata/2.npy is missing'),
    (lambda f: (f / 'metadata/2.npy').write_text(''),
     'metadata/2.npy, line 1: the table is empty'),
    (lambda f: Image.fromarray(np.full((32, 32), 4000, np.uint16)).save(
        f / 'imgs/1/sample_0.png'),
     'sample_0.png cannot be read (it has more than 8 bits a colour)'),
])
def test_what_is_wrong_is_named(tmp_path, change, sentence):
  write_official(tmp_path)
  change(tmp_path)
  with pytest.raises(UserError) as caught:
    pathfinder.import_official(tmp_path, 32, SIZES)
  assert sentence in str(caught.value) and '\n' not in str(caught.value)


@pytest.mark.parametrize('missing, sentence', [
    (['metadata'], ' has no folder metadata: '),
    (['imgs', 'metadata'], ' has no folders metadata and imgs: --source of '
     'pathfinder must be the folder pathfinder32/')])
def test_a_bad_source_is_one_sentence_and_leaves_no_data(
    tmp_path, capsys, missing, sentence):
  folder = tmp_path / 'lra_release' / 'pathfinder32' / pathfinder.HARD
  write_official(folder)
  for name in missing:
    shutil.rmtree(folder / name)
  assert sentence in refused(
      capsys, 'pathfinder', tmp_path / 'lra_release', tmp_path / 'data')


@pytest.mark.parametrize('place', [
    '', 'pathfinder32', f'pathfinder32/{pathfinder.HARD}'])
def test_the_release_is_found_from_any_of_its_folders(tmp_path, place):
  write_official(tmp_path / 'pathfinder32' / pathfinder.HARD)
  path = data_prep.prepare('pathfinder', tmp_path / 'data', tmp_path / place)
  content = data_prep.read('pathfinder', tmp_path / 'data')
  assert path.exists() and len(content.splits['train']) == 16
  assert content.info['origin'] == (
      f'official images, pathfinder32/{pathfinder.HARD}, 16/2/2 {OF_ALL}')
  assert data_prep.prepare('pathfinder', tmp_path / 'data') == path


@pytest.mark.parametrize('place', ['', 'lra_release', 'lra_release/lra_release',
                                   'lra_release/pathfinder32'])
def test_of_two_folders_of_the_release_the_inner_one_is_read(tmp_path, place):
  """The outer folder is read only if --source names it.

  The stored origin names the folder.
  """
  hard = f'pathfinder32/{pathfinder.HARD}'
  outer, inner = (tmp_path / 'lra_release' / name / hard
                  for name in ('', 'lra_release'))
  write_official(outer)
  write_official(inner, per_table=5)
  data_prep.prepare('pathfinder', tmp_path / 'data', tmp_path / place)
  content = data_prep.read('pathfinder', tmp_path / 'data')
  named = place.endswith('pathfinder32')
  assert sum(map(len, content.splits.values())) == (20 if named else 10)
  assert content.info['origin'] == 'official images, ' + (
      f'lra_release/{hard}, 16/2/2 {OF_ALL}' if named else
      f'lra_release/lra_release/{hard}, 8/1/1 {OF_ALL}')
