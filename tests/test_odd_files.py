"""Paths to pipes, devices and huge files give one error sentence.

The tests call each function that reads a user's file or a run directory. It
must not read or wait for ever.
"""

import codecs
import os
import pathlib
import signal

import pytest

from lra.board import inputs
from lra.cli.predict import predict
from lra.core import files
from lra.core.errors import UserError
from lra.data import wordpiece
from lra.data_prep import folders, source
from lra.data_prep.source import Source
from lra.many import runs
from lra.run import curves, loader, rundir
from lra.schema import result, runs_file

CONFIG = {'task': 'listops_mini', 'seed': 0, 'model': {'name': 'local'}}
LONGEST = 10  # seconds that a test may take


def _run(folder):
  """Opens a run directory as a resumed run does."""
  made = rundir.RunDirectory(folder, CONFIG)
  try:
    made.rewind(0, 0)
  finally:
    made.close()


# Path in a folder -> function that reads this path, given the folder.
READERS = {
    'examples.txt': lambda f: predict(f / 'examples.txt', f),
    'a.toml': lambda f: runs.read(f'{f}/a.toml'),
    'a.tar': lambda f: list(Source(f / 'a.tar').files(len)),
    'published.csv': lambda f: inputs.published(f / 'published.csv'),
    'speed.json': lambda f: inputs.speeds(f / 'speed.json'),
    'own.py': lambda f: loader.made_by([f'--config={f}/own.py:listops']),
    'config.json': lambda f: rundir.check_config(f, CONFIG),
    'env.json': rundir.environment,
    'result.json': lambda f: result.read(f / 'result.json'),
    'curves/metrics.jsonl': lambda f: curves.read(f / 'curves/metrics.jsonl'),
}
ODD = {
    'pipe': os.mkfifo,
    'device': lambda path: path.symlink_to('/dev/zero'),
    'terminal': lambda path: path.symlink_to('/dev/tty'),
}


@pytest.fixture(autouse=True)
def bounded():
  """Fails a test that takes more than LONGEST seconds."""
  def late(*_):
    raise AssertionError('the reader does not return')

  before = signal.signal(signal.SIGALRM, late)
  signal.alarm(LONGEST)
  yield
  signal.alarm(0)
  signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize('kind', ODD)
@pytest.mark.parametrize('name', READERS)
def test_what_is_no_regular_file_is_refused(name, kind, tmp_path):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  ODD[kind](path)
  with pytest.raises(UserError, match='regular file') as refused:
    READERS[name](tmp_path)
  assert path.name in str(refused.value) and '\n' not in str(refused.value)


@pytest.mark.parametrize('name', [
    name for name in READERS if not name.endswith('.tar')])
def test_what_is_far_too_large_is_not_read(name, tmp_path):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  with open(path, 'wb') as f:
    f.truncate(2**40)  # a sparse file, which needs no disk space
  with pytest.raises(UserError, match='bytes') as refused:
    READERS[name](tmp_path)
  assert path.name in str(refused.value)


DAMAGED = {
    'deep': b'[' * 100_000, 'deep_toml': b'a = ' + b'[' * 100_000,
    'bytes': b'\xff\xfe\0', 'digits': b'9' * 10_000, 'empty': b''}


@pytest.mark.parametrize('kind', DAMAGED)
@pytest.mark.parametrize('name', READERS)
def test_what_is_damaged_is_one_sentence(name, kind, tmp_path):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(DAMAGED[kind] + b'\n\n')
  with pytest.raises(UserError) as refused:
    READERS[name](tmp_path)
  said = str(refused.value)
  assert path.name in said or name == 'examples.txt'
  assert '\n' not in said and len(said) < 600


# Path -> content and a function that reads the path.
TEXTS = {
    'a.toml': ('seeds = "3"', lambda f: runs_file.read(f / 'a.toml')),
    'a.json': ('[1]', lambda f: files.read_json(f / 'a.json')),
    'vocab.txt': ('[PAD]\n[UNK]\n[CLS]\n[SEP]\n', wordpiece.read),
    'a.tsv': ('0\ta\n1\tb\n', lambda f: list(source.read_rows(f / 'a.tsv'))),
    'own.py': ('from configs import base\nget_config = base.of("gla")\n',
               lambda f: loader.made_by([f'--config={f}/own.py:text'])),
    'published.csv': (','.join(inputs.COLUMNS),
                      lambda f: inputs.published(f / 'published.csv'))}


@pytest.mark.parametrize('name', TEXTS)
def test_a_byte_order_mark_is_no_text(name, tmp_path):
  content, read = TEXTS[name]
  found = []
  for start in (b'', codecs.BOM_UTF8):
    (tmp_path / name).write_bytes(start + content.encode())
    found.append(read(tmp_path))
  assert found[0] == found[1]


def test_a_pipe_in_a_run_directory_ends_no_run_with_a_wait(tmp_path):
  os.mkfifo(tmp_path / 'metrics.jsonl')
  with pytest.raises(UserError, match=r'metrics\.jsonl \(.*regular file'):
    _run(tmp_path)


@pytest.mark.parametrize('link', [
    pathlib.Path.symlink_to, pathlib.Path.hardlink_to])
@pytest.mark.parametrize('lock', [
    lambda f: rundir.RunDirectory(f, CONFIG).close(),
    lambda f: folders.lock(f).__enter__()])
def test_a_lock_empties_nothing(lock, link, tmp_path):
  victim, folder = tmp_path / 'victim', tmp_path / 'folder'
  victim.write_text('precious')
  folder.mkdir()
  link(folder / '.lock', victim)
  if link is pathlib.Path.symlink_to:
    with pytest.raises((UserError, OSError), match=r'\.lock is a link'):
      lock(folder)
  else:
    lock(folder)
  assert victim.read_text() == 'precious'


@pytest.mark.parametrize('name', ['metrics.jsonl', 'curves.png', 'env.json'])
def test_a_run_writes_through_no_link_in_its_directory(name, tmp_path):
  victim, folder = tmp_path / 'victim', tmp_path / 'folder'
  victim.write_text('precious\n')
  folder.mkdir()
  (folder / name).symlink_to(victim)
  with pytest.raises(UserError, match=f'{name} is a link'):
    _run(folder)
  assert victim.read_text() == 'precious\n'


def test_a_directory_may_be_elsewhere(tmp_path):
  (tmp_path / 'large').mkdir()
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run/checkpoints').symlink_to(tmp_path / 'large')
  (tmp_path / 'link').symlink_to(tmp_path / 'run')
  _run(tmp_path / 'link')
