"""Pathfinder: the law of its images, and the official folders."""

import dataclasses
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

import data_prep
from data_prep import __main__ as command
from data_prep import drawing, pathfinder, pixels, stamps
from data_prep.content import fingerprint
from lra.errors import UserError

pytest.importorskip('numba')
from data_prep import snakes

LINE = 'imgs/{i} sample_{j}.png {j} {label} 1.8 14 4 5 1.5 2 1'
ROOT = pathlib.Path(__file__).parent.parent.parent
# Short snakes far from each other: which dashes belong together can be seen.
SPARSE = dataclasses.replace(
    stamps.LAWS[64], contour_length=4, distractors=0, seed_distance=14,
    continuity=2.5)


@functools.cache
def drawn(count):
  """(uint8 [N, 32, 32], labels, attempts, distractors) of the first images."""
  artist = snakes.Artist(stamps.LAWS[32])
  parts = zip(*(artist.draw(i) for i in range(count)), strict=True)
  return tuple(np.stack(part) for part in parts)


@pytest.mark.parametrize('side, margin, orientations, places', [
    (32, 1, 30, 18), (64, 1, 95, 38), (128, 2, 354, 41), (128, 3, 360, None),
    (256, 3, 360, None)])
def test_stamps_are_those_of_the_original(side, margin, orientations, places):
  """Counted in what the original program made."""
  law = stamps.LAWS[side]
  assert stamps.first(law, margin).usable.sum() == orientations
  if places:
    assert len(stamps.ring(law, margin)[0]) == places


def test_statistics_are_those_of_the_original():
  """As measured on images of the original program, within sampling error."""
  images, labels, attempts, placed = drawn(2000)
  for values, low, high in ((images.mean((1, 2)), 20.2, 20.4),
                            (attempts, 296, 326), (placed, 1.14, 1.26),
                            (labels, 0.5, 0.5)):
    error = values.std() / len(values) ** 0.5
    assert low - 3 * error < values.mean() < high + 3 * error
  assert (images.min((1, 2)) == 0).all() and (images.max((1, 2)) == 255).all()


def test_the_label_says_whether_the_discs_are_on_one_curve():
  """By joining dashes that are near each other, whatever drew them."""
  artist, told = snakes.Artist(SPARSE), 0
  for number in range(100):
    image, label, _, _ = artist.draw(number)
    joined = ndimage.binary_dilation(image > 40, stamps.disc(2))
    parts, count = ndimage.label(joined, np.ones((3, 3)))
    if count != 2:
      continue  # they touch, or a gap is too wide
    discs = ndimage.uniform_filter(image.astype(float), 3) > 250
    found = set(parts[discs])
    assert len(found) == (1 if label else 2), number
    told += 1
  assert told > 30


def test_an_image_depends_on_seed_and_number_only():
  a, b = snakes.Artist(stamps.LAWS[32], 1), snakes.Artist(stamps.LAWS[32], 1)
  a.draw(0)
  np.testing.assert_array_equal(a.draw(5)[0], b.draw(5)[0])
  other = snakes.Artist(stamps.LAWS[32], 2)
  assert (a.draw(5)[0] != other.draw(5)[0]).any()


def test_drawing_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
  monkeypatch.setattr(drawing, '_PART', 4)
  variant = pathfinder.Variant(stamps.LAWS[32], (10, 2, 3))
  whole = pathfinder.generate(variant, tmp_path / 'a', processes=1)
  assert [len(whole.splits[s]) for s in ('train', 'val', 'test')] == [10, 2, 3]
  images = drawn(15)[0]
  assert whole.splits['val'].document(1) == images[11].tobytes()
  for start in (0, 8):
    path = tmp_path / 'b' / f'{start}.npz'
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((tmp_path / 'a' / path.name).read_bytes())
  (tmp_path / 'b' / '4.123.npz').write_bytes(b'torn')
  again = pathfinder.generate(variant, tmp_path / 'b', processes=2)
  assert fingerprint(again.splits) == fingerprint(whole.splits)


def test_the_mini_images_are_distinct_and_of_four_greys(tmp_path):
  mini = dataclasses.replace(
      pathfinder.VARIANTS['mini'], sizes=(500, 100, 100), spare=150)
  content = pathfinder.generate(mini, tmp_path)
  seen = [split.document(i) for split in content.splits.values()
          for i in range(len(split))]
  assert len(set(seen)) == len(seen) == 700
  assert set(b''.join(seen)) == {0, 85, 170, 255}
  # What the page and configs/protocols.py say of their first positions.
  assert not any(any(image[:4]) for image in seen)
  assert sum(any(image[:16]) for image in seen) <= 2
  artist = snakes.Artist(mini.law)
  image, label, *_ = artist.draw(0)
  first = np.frombuffer(seen[0], np.uint8).astype(int)
  assert abs(first - image.reshape(-1)).max() <= 255 / 6
  assert content.splits['train'].labels[0] == label


@pytest.mark.parametrize('side, count', [(32, 500), (128, 31), (256, 10)])
def test_parts_of_larger_images_have_fewer(
    tmp_path, monkeypatch, side, count):
  """So that the bar moves, and little is lost, whatever the size."""
  asked = []
  monkeypatch.setattr(drawing, '_draw_missing',
                      lambda law, seed, parts, _: asked.append(parts))
  monkeypatch.setattr(drawing, '_load', lambda path, count: [
      np.zeros((count, side, side)), *[np.zeros(count)] * 3])
  drawing.draw(stamps.LAWS[side], 0, 501, tmp_path)
  parts, = asked
  assert [i for numbers in parts for i in numbers] == list(range(501))
  assert max(map(len, parts)) == count
  assert len(set(parts.values())) == len(parts)


@pytest.mark.parametrize('content', [
    b'', b'PK\x03\x04', 'another'])
def test_a_damaged_part_is_named(tmp_path, content):
  path = tmp_path / '0.npz'
  if content == 'another':
    np.savez(path, images=np.zeros((3, 32, 32), np.uint8))
  else:
    path.write_bytes(content)
  with pytest.raises(UserError, match='0.npz is damaged .*: delete it'):
    drawing.draw(stamps.LAWS[32], 0, 4, tmp_path)


SLOW = """
from lra import signals
signals.listen()
from data_prep import __main__ as command, drawing, pathfinder, stamps
drawing._PART = 4
pathfinder.VARIANTS['32'] = pathfinder.Variant(stamps.LAWS[64], (60, 8, 8))
raise SystemExit(command.main(['--task=pathfinder']))
"""


def drawing_command(data_dir, prelude=''):
  """Draws 76 images of 64 x 64 pixels, four to a part."""
  return subprocess.Popen(
      [sys.executable, '-c', prelude + SLOW], cwd=ROOT, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      env={**os.environ, 'TFDS_DATA_DIR': str(data_dir)})


def drawn_parts(folder):
  return {p.name: p.stat().st_mtime_ns for p in folder.glob('drawn-*/*.npz')
          if p.stem.isdigit()}


def wait_until(true):
  for _ in range(600):
    if true():
      return
    time.sleep(0.1)
  pytest.fail('a minute has passed')


@pytest.mark.full
@pytest.mark.parametrize('number, code', [
    (signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 75)])
def test_killed_while_drawing(tmp_path, number, code):
  """Nothing looks prepared, no process stays, and nothing is drawn again."""
  folder = tmp_path / 'pathfinder' / '32'
  process = drawing_command(tmp_path)
  wait_until(lambda: len(drawn_parts(folder)) > 2 or process.poll() is not None)
  process.send_signal(number)
  _, told = process.communicate(timeout=60)  # until no child has the pipes
  assert process.returncode == code and 'Traceback' not in told
  before = drawn_parts(folder)
  assert 2 < len(before) < 19 and not (folder / '1.0.0').exists()
  again = drawing_command(tmp_path)
  kept = []
  while again.poll() is None:
    kept.append(drawn_parts(folder))
    time.sleep(0.05)
  assert again.wait() == 0
  assert max(kept, key=len).items() >= before.items()
  assert sorted(p.name for p in folder.iterdir()) == ['.lock', '1.0.0']
  data, artist = data_prep.read('pathfinder', tmp_path), snakes.Artist(
      stamps.LAWS[64])
  for split, i, drawn in (('train', 59, 59), ('test', 0, 68)):
    assert data.splits[split].document(i) == artist.draw(drawn)[0].tobytes()


@pytest.mark.full
def test_no_room_for_what_is_drawn(tmp_path):
  """A limit on file sizes stands for a full disk: write() fails as well."""
  process = drawing_command(tmp_path, 'import resource; resource.setrlimit('
                            'resource.RLIMIT_FSIZE, (1000, 1000))')
  _, told = process.communicate(timeout=120)
  assert process.returncode == 2 and 'Traceback' not in told
  assert told.rpartition('\r')[2].strip().splitlines()[-1].startswith(
      'error: Cannot prepare pathfinder in ')
  assert 'File too large' in told


@pytest.mark.full
def test_a_drawing_process_is_killed(tmp_path):
  """As the system does where memory is short: nobody waits for it."""
  process = drawing_command(tmp_path)
  folder = tmp_path / 'pathfinder' / '32'
  wait_until(lambda: drawn_parts(folder) or process.poll() is not None)
  children = pathlib.Path(
      f'/proc/{process.pid}/task/{process.pid}/children').read_text().split()
  child = next(pid for pid in children if b'drawing.work' in pathlib.Path(
      f'/proc/{pid}/cmdline').read_bytes())
  os.kill(int(child), signal.SIGKILL)
  _, told = process.communicate(timeout=60)
  assert process.returncode == 2 and 'Traceback' not in told
  assert 'killed by signal 9: run the same command again' in told


def write_official(folder, per_table=10, tables=2, side=32):
  """Folder, metadata and images like those of the release."""
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
  """Tables by number (10 after 9), the first 80% train."""
  images, labels = write_official(tmp_path, per_table=2, tables=10)
  content = pathfinder.import_official(tmp_path, 32)
  sizes = [len(content.splits[s]) for s in ('train', 'val', 'test')]
  assert sizes == [16, 2, 2]
  for place, (split, i) in {0: ('train', 0), 15: ('train', 15), 17: ('val', 1),
                            19: ('test', 1)}.items():
    assert content.splits[split].document(i) == images[place].tobytes()
    assert content.splits[split].labels[i] == labels[place]


def test_the_empty_image_of_the_release_is_left_out(tmp_path):
  folder = tmp_path / 'pathfinder32' / 'curv_baseline'
  write_official(folder)
  (folder / 'imgs/0').mkdir()
  (folder / 'imgs/0/sample_172.png').write_bytes(b'')
  (folder / 'metadata/0.npy').write_text(LINE.format(i=0, j=172, label=1))
  assert sum(map(len, pathfinder.import_official(
      folder, 32).splits.values())) == 20


def test_files_that_are_no_tables_are_passed_over(tmp_path):
  write_official(tmp_path)
  for name in ('\u00b23.npy', 'notes.npy', '.hidden.npy'):
    (tmp_path / 'metadata' / name).write_text('?')
  assert len(pathfinder.import_official(tmp_path, 32).splits['train']) == 16


def break_line(text):
  def change(folder):
    path = folder / 'metadata' / '2.npy'
    lines = path.read_text().splitlines()
    lines[4] = text
    path.write_text('\n'.join(lines))
  return change


def cut_table(path, lines):
  path.write_text(''.join(path.read_text().splitlines(True)[:lines]))


def truncate(folder):
  path = folder / 'imgs/1/sample_3.png'
  path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize('change, sentence', [
    (truncate, 'imgs/1/sample_3.png cannot be read'),
    (lambda f: (f / 'imgs/2/sample_0.png').write_bytes(b''),
     'imgs/2/sample_0.png cannot be read'),
    (lambda f: (f / 'imgs/2/sample_9.png').unlink(),
     'imgs/2/sample_9.png cannot be read (it is missing)'),
    (lambda f: Image.new('L', (64, 64)).save(f / 'imgs/1/sample_0.png'),
     'has 64 x 64 pixels instead of 32 x 32'),
    (lambda f: [p.unlink() for p in (f / 'metadata').iterdir()],
     'metadata has no tables'),
    (lambda f: (f / 'metadata/1.npy').write_bytes(b'\x93NUMPY\xff'),
     'metadata/1.npy, line 1: it is not the text of the release'),
    (break_line('imgs/2 sample_4.png'),
     'metadata/2.npy, line 5: 2 fields, none is the label'),
    (break_line(LINE.format(i=2, j=4, label=7)), 'line 5: the label is 7'),
    (break_line(LINE.format(i='../..', j=4, label=1)),
     'is outside of its folder'),
    (lambda f: (f / 'metadata/1.npy').unlink(),
     'metadata/1.npy is missing, so that some images are in no table'),
    (lambda f: [shutil.rmtree(f / 'imgs/2'),
                (f / 'metadata/2.npy').rename(f / 'metadata/3.npy')],
     'metadata/2.npy is missing'),
    (lambda f: (f / 'metadata/2.npy').write_text(''),
     'metadata/2.npy, line 1: the table is empty'),
    (lambda f: [(f / 'metadata/2.npy').unlink(),
                (f / 'metadata/2.npy').mkdir()],
     'metadata/2.npy, line 1: cannot be read (Is a directory)'),
    (lambda f: [(f / f'metadata/{i}.npy').write_text(
        LINE.format(i=i, j=0, label=1)) for i in (1, 2)],
     'metadata lists 2 images, too few for three splits'),
    (lambda f: cut_table(f / 'metadata/2.npy', 7),
     'metadata/2.npy lists 7 of the 10 images of imgs/2: unpack'),
    (lambda f: Image.fromarray(np.full((32, 32), 4000, np.uint16)).save(
        f / 'imgs/1/sample_0.png'),
     'sample_0.png cannot be read (it has more than 8 bits a pixel)'),
])
def test_what_is_wrong_is_named(tmp_path, change, sentence):
  write_official(tmp_path)
  change(tmp_path)
  with pytest.raises(UserError) as caught:
    pathfinder.import_official(tmp_path, 32)
  assert sentence in str(caught.value) and '\n' not in str(caught.value)


@pytest.mark.parametrize('change, sentence', [
    (truncate, 'imgs/1/sample_3.png cannot be read ('),
    (lambda f: shutil.rmtree(f / 'metadata'), ' has no folder metadata: '),
    (lambda f: shutil.rmtree(f / 'imgs'), ' has no folder imgs: '),
    (lambda f: [shutil.rmtree(f / n) for n in ('imgs', 'metadata')],
     ' has no folders metadata and imgs: '),
    (shutil.rmtree, ' has no folders metadata and imgs: ')])
def test_a_bad_source_is_one_sentence_and_leaves_no_data(
    tmp_path, capsys, change, sentence):
  folder = tmp_path / 'lra_release' / 'pathfinder32' / pathfinder.HARD
  write_official(folder)
  change(folder)
  assert command.main(['--task=pathfinder', f'--data_dir={tmp_path / "data"}',
                       f'--source={tmp_path / "lra_release"}']) == 2
  error = capsys.readouterr().err.rpartition('\r')[2].strip().splitlines()
  assert error[-1].startswith('error: ') and sentence in error[-1]
  assert not list((tmp_path / 'data').glob('pathfinder/32/[!.]*'))


def test_a_source_that_does_not_exist(tmp_path):
  with pytest.raises(UserError, match='nowhere does not exist: --source of '
                     'pathfinder must be the folder pathfinder32/'):
    data_prep.prepare('pathfinder', tmp_path / 'data', tmp_path / 'nowhere')
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('task, sentence', [
    ('pathfinder', 'numba: run .*, or give the official images with --source'),
    ('pathfinder_mini', r"numba: run pip install -e '.\[pathfinder\]'\.$")])
def test_without_numba(tmp_path, monkeypatch, task, sentence):
  """Only what is released is advised."""
  monkeypatch.setitem(sys.modules, 'numba', None)
  with pytest.raises(UserError, match=sentence):
    data_prep.prepare(task, tmp_path / 'data')
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('place', [
    '', 'pathfinder32', f'pathfinder32/{pathfinder.HARD}'])
def test_the_release_is_found_from_any_of_its_folders(tmp_path, place):
  write_official(tmp_path / 'pathfinder32' / pathfinder.HARD)
  path = data_prep.prepare('pathfinder', tmp_path / 'data', tmp_path / place)
  content = data_prep.read('pathfinder', tmp_path / 'data')
  assert path.exists() and len(content.splits['train']) == 16
  assert content.info['origin'] == f'official images, {pathfinder.HARD}'
  assert data_prep.prepare('pathfinder', tmp_path / 'data') == path


def splits_of(images, labels):
  half = len(images) // 2
  parts = {'train': slice(None, half), 'val': slice(None, half),
           'test': slice(half, None)}
  return {name: pathfinder.images_split(images[part], labels[part])
          for name, part in parts.items()}


def test_floors_are_about_those_published():
  """Distance 54.7%, ridge 50 to 52% on 6,000 images of the original."""
  images, labels, *_ = drawn(2000)
  splits = splits_of(images, labels)
  error = 3 * (0.25 / 1000) ** 0.5
  distance, how = pixels.marker_distance(splits, 1.5)
  assert abs(distance.mean() - 0.547) < error
  assert 'pixels or more apart' in how
  ridge, _ = pixels.ridge(splits)
  assert abs(ridge.mean() - 0.51) < error


def test_ridge_is_that_of_scikit_learn():
  linear_model = pytest.importorskip('sklearn.linear_model')
  rng = np.random.default_rng(0)
  labels = np.arange(600) % 3
  images = rng.integers(0, 200, (600, 8, 8), np.uint8)
  images[:, 2, 3] += np.uint8(20 * labels)
  splits = splits_of(images, labels)
  got, how = pixels.ridge(splits)
  best = 0
  x = images.reshape(600, -1) / 255
  x = np.concatenate([x, np.ones((600, 1))], 1)
  scale = np.trace(x[:300].T @ x[:300]) / 65
  scores = []
  for penalty in (1e-3, 1e-2, 1e-1, 1.0):
    model = linear_model.Ridge(alpha=penalty * scale, fit_intercept=False)
    model.fit(x[:300], np.eye(3)[labels[:300]])
    hits = model.predict(x).argmax(1) == labels
    scores.append((hits[:300].mean(), hits[300:].mean()))
  best = max(range(4), key=lambda i: (scores[i][0], -i))
  assert got.mean() == pytest.approx(scores[best][1])
  assert '8 x 8 pixels' in how
