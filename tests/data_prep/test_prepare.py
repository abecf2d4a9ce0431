"""A data set is prepared once, by one process, and completely or not at all."""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from array_record.python import array_record_module

from lra import data_prep
from lra.core.errors import UserError
from lra.data import prepared
from lra.data_prep import __main__ as command
from lra.data_prep import builder as builder_lib
from lra.data_prep import folders, listops, text
from lra.data_prep.content import SPLITS, Content, split_of
from tests.helpers.paths import ROOT

OFFICIAL = ROOT / 'tests' / 'fixtures' / 'listops'
PREPARE = ('from lra import data_prep; '
           f"data_prep.prepare('listops', source={str(OFFICIAL)!r}); ")


def python(code, data_dir, **kwargs):
  return subprocess.Popen(
      [sys.executable, '-c', code], cwd=ROOT, stderr=subprocess.PIPE, text=True,
      env={**os.environ, 'TFDS_DATA_DIR': str(data_dir)}, **kwargs)


def prepare(data_dir):
  """Prepares a ListOps data set with three training expressions."""
  return data_prep.prepare('listops', data_dir, OFFICIAL)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  data_dir = tmp_path_factory.mktemp('prepared')
  return data_dir, prepare(data_dir)


@pytest.fixture
def copy(data, tmp_path):
  """Copies the prepared data; returns (data directory, data set's folder)."""
  shutil.copytree(data[0], tmp_path / 'copy')
  return tmp_path / 'copy', tmp_path / 'copy' / data[1].relative_to(data[0])


def test_second_time_prepares_nothing(data, monkeypatch):
  data_dir, path = data
  monkeypatch.setattr(builder_lib.Builder, '_split_generators', None)
  assert prepare(data_dir) == data_prep.prepare('listops', data_dir) == path
  info = json.loads((path / 'metadata.json').read_text())
  assert len(info['source']) == 64


def test_tfds_reads_it_too(data):
  import tensorflow_datasets as tfds
  builder = tfds.builder_from_directory(data[1])
  example = builder.as_data_source('val')[0]
  assert example['label'] == 3
  assert example['tokens'] == bytes([10, 8, 3, 14])


@pytest.mark.parametrize('error', [KeyboardInterrupt, UserError])
def test_interruption_leaves_nothing(tmp_path, monkeypatch, error):
  def interrupt(builder):
    raise error
  with monkeypatch.context() as m:
    m.setattr(builder_lib, 'read', interrupt)
    with pytest.raises(error):
      prepare(tmp_path)
  assert not list(tmp_path.iterdir())
  assert len(prepared.load('listops', tmp_path, OFFICIAL).splits['train']) == 3


def test_kill_leaves_nothing_that_looks_prepared(tmp_path):
  code = ('import os; from lra.data_prep import builder; '
          'builder.read = lambda b: os.kill(os.getpid(), 9); '
          + PREPARE)
  killed = python(code, tmp_path)
  killed.communicate(timeout=60)
  assert killed.returncode == -signal.SIGKILL
  folder = tmp_path / 'listops' / 'lra'
  assert len(list(folder.glob('incomplete.*'))) == 1
  assert not (folder / '1.0.0').exists()
  assert len(prepared.load('listops', tmp_path, OFFICIAL).splits['train']) == 3
  assert sorted(p.name for p in folder.iterdir()) == ['.lock', '1.0.0']


@pytest.mark.full
def test_two_at_once(tmp_path):
  code = ('import time; from lra.data_prep import builder; '
          'read = builder.read; '
          'builder.read = lambda b: (time.sleep(1), read(b))[1]; '
          + PREPARE
          + "print(data_prep.read('listops').info['fingerprint'])")
  both = [python(code, tmp_path, stdout=subprocess.PIPE) for _ in range(2)]
  outputs = [p.communicate(timeout=60) for p in both]
  assert [p.returncode for p in both] == [0, 0]
  assert outputs[0][0] == outputs[1][0] != ''
  folder = tmp_path / 'listops' / 'lra'
  assert sorted(p.name for p in folder.iterdir()) == ['.lock', '1.0.0']
  assert sum('storing' in stderr for _, stderr in outputs) == 1


@pytest.mark.parametrize('removed', [False, True])
def test_waits_for_the_other(tmp_path, monkeypatch, capsys, removed):
  """A process that waits locks the folder anew if it was removed meanwhile.

  A process that fails removes a folder that it made.
  """
  folder = tmp_path / 'new' / 'listops' / 'lra'
  waits, flock = threading.Event(), fcntl.flock

  def noted(f, how):
    if how == fcntl.LOCK_EX:
      waits.set()
    return flock(f, how)
  with folders.lock(folder):
    monkeypatch.setattr(folders.fcntl, 'flock', noted)
    other = threading.Thread(target=prepare, args=(tmp_path / 'new',))
    other.start()
    assert waits.wait(60) and not (folder / '1.0.0').exists()
    if removed:
      shutil.rmtree(tmp_path / 'new')
  other.join(60)
  assert sorted(p.name for p in folder.iterdir()) == ['.lock', '1.0.0']
  assert 'Waiting for another process' in capsys.readouterr().err


def test_directory_that_is_a_file(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match='Not a directory.*--data_dir'):
    prepare(tmp_path / 'file')


@pytest.mark.full
def test_no_room(tmp_path):
  """A full disk gives one error; a limit on file sizes stands for it."""
  code = ('import resource; resource.setrlimit(resource.RLIMIT_FSIZE, '
          '(100_000, 100_000)); '
          "from lra import data_prep; data_prep.prepare('listops_mini')")
  process = python(code, tmp_path)
  _, stderr = process.communicate(timeout=60)
  assert process.returncode == 1
  assert 'UserError: Cannot prepare listops_mini' in stderr
  assert 'File too large' in stderr.splitlines()[-1]
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('edit', [
    lambda text: f'{text}7\t7\n', lambda text: text.replace('3', '4')])
def test_another_source_is_refused(data, tmp_path, edit):
  shutil.copytree(OFFICIAL, tmp_path / 'other')
  path = tmp_path / 'other' / 'basic_val.tsv'
  path.write_text(edit(before := path.read_text()))
  with pytest.raises(UserError, match='another source.*delete'):
    data_prep.prepare('listops', data[0], tmp_path / 'other')
  path.write_text(before)
  data_prep.prepare('listops', data[0], tmp_path / 'other')


@pytest.mark.parametrize('name', ['mine.csv', 'mine/mine.csv'])
def test_an_edited_source_of_an_own_builder_is_not_kept(
    tmp_path, monkeypatch, name):
  """Such a builder names no files: the source is a file or a folder."""
  def make(self, files):
    rows = (tmp_path / name).read_bytes().split()
    part = split_of(rows, [0] * len(rows))
    return Content(dict.fromkeys(SPLITS, part), {'origin': 'mine'})
  monkeypatch.setattr(listops.Listops, 'names', ())
  monkeypatch.setattr(listops.Listops, 'make', make)
  path, source = tmp_path / name, tmp_path / name.partition('/')[0]
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(b'\1 \2')
  for _ in range(2):
    data_prep.prepare('listops', tmp_path / 'data', source)
  path.write_bytes(b'\1 \3')
  with pytest.raises(UserError, match='has changed since'):
    data_prep.prepare('listops', tmp_path / 'data', source)


def test_data_of_an_earlier_version_have_sizes_only(copy):
  data_dir, path = copy
  about = json.loads((path / 'metadata.json').read_text())
  for changed in (0, 1):
    about['source'] = {x.name: x.stat().st_size + changed for x in map(
        OFFICIAL.joinpath, listops.Listops.names)}
    (path / 'metadata.json').write_text(json.dumps(about))
    if not changed:
      assert prepare(data_dir) == path
  with pytest.raises(UserError, match='another source'):
    prepare(data_dir)


def cut(path):
  data = path.read_bytes()
  path.write_bytes(data[:len(data) // 2])


@pytest.mark.parametrize('name, spoil', [
    *((name, spoil) for spoil in (cut, pathlib.Path.unlink) for name in (
        'listops-train.array_record-00000-of-00001', 'dataset_info.json',
        'metadata.json')),
    *(('metadata.json', content) for content in (
        b'[]', b'{}', b'{"fingerprint": 3}', b'\xff')),
    *(('dataset_info.json', content) for content in (b'{}', b'[]', b'null')),
    ('listops-val.array_record-00000-of-00001', b''),
    ('listops-val.array_record-00000-of-00001', b'x' * 70_000)])
def test_damaged_files(copy, name, spoil):
  data_dir, path = copy
  if callable(spoil):
    spoil(path / name)
  else:
    (path / name).write_bytes(spoil)
  with pytest.raises(UserError) as e:
    prepared.load('listops', data_dir)
  assert str(path.parent) in str(e.value) and '\n' not in str(e.value)


def test_generated_minis_are_not_made_from_files(tmp_path):
  with pytest.raises(UserError, match='listops_mini is generated, .*leave out '
                     '--source, or take --task=listops'):
    data_prep.prepare('listops_mini', tmp_path / 'data', OFFICIAL)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('place', ['typo', 'a/new/place'])
@pytest.mark.parametrize('meanwhile', [False, True])
def test_a_failure_leaves_only_what_another_has_made(
    tmp_path, monkeypatch, place, meanwhile):
  def fail(*args):
    if meanwhile:
      prepare(tmp_path / place)
    raise UserError('no luck')
  monkeypatch.setattr(text, 'read_reviews', fail)
  with pytest.raises(UserError, match='no luck'):
    data_prep.prepare('text_mini', tmp_path / place, tmp_path)
  if meanwhile:
    assert [p.name for p in (tmp_path / place).iterdir()] == ['listops']
    assert len(prepared.load('listops', tmp_path / place).splits['train']) == 3
  else:
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('spoil', [cut, pathlib.Path.unlink])
def test_the_command_finds_files_that_are_not_whole(copy, capsys, spoil):
  data_dir, path = copy
  spoil(path / 'listops-train.array_record-00000-of-00001')
  assert command.main(['--task=listops', f'--data_dir={data_dir}']) == 2
  assert f'{path} is damaged' in capsys.readouterr().err


def test_altered_bytes(copy):
  """A valid file with other content than was prepared is detected."""
  data_dir, path = copy
  source = path / 'listops-val.array_record-00000-of-00001'
  target = path / 'listops-test.array_record-00000-of-00001'
  record, = array_record_module.ArrayRecordReader(str(source)).read_all()
  writer = array_record_module.ArrayRecordWriter(str(target), 'group_size:1')
  for _ in range(2):  # the number of records stays the same
    writer.write(record)
  writer.close()
  with pytest.raises(UserError, match='fingerprint'):
    prepared.load('listops', data_dir)
