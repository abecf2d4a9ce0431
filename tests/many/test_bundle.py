"""Tests bundles: tar files that carry the runs of a sweep elsewhere."""

import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from lra.core import files
from lra.core.errors import UserError
from lra.many import bundle, sweep
from lra.schema import identity
from tests.helpers import tiny
from tests.helpers.paths import ROOT

RECORD = next((ROOT / 'lra/results/runs/listops_mini').glob('simpletron-*'))
CONFIG = json.loads(RECORD.read_text())['config']
FOLDER = identity.run_folder(CONFIG)
ENTRY = sweep.Entry(('--config=a', f'--config.seed={CONFIG["seed"]}'), FOLDER)
RESULTS = pathlib.Path('results')


def _begun(step=200, best=100, points='x'):
  """Makes the directory of a stopped run in the current folder."""
  files.write_json(FOLDER / 'config.json', CONFIG)
  files.write_json(FOLDER / 'env.json', {'data_fingerprint': 'f'})
  (FOLDER / 'metrics.jsonl').write_text(points)
  for number in (step - 100, step):
    checkpoint = FOLDER / 'checkpoints/last' / str(number)
    files.write_json(
        checkpoint / 'memory/metadata', {'best_step': best})
    (checkpoint / 'state').mkdir()
    (checkpoint / 'state/array').write_bytes(os.urandom(3000))
    scored = FOLDER / 'checkpoints/best' / str(number) / 'default'
    scored.mkdir(parents=True)
    (scored / 'array').write_bytes(os.urandom(2000))


def _finished():
  _begun()
  shutil.copy(RECORD, FOLDER / 'result.json')


def _files(folder):
  return {path.relative_to(folder).as_posix(): path.read_bytes()
          for path in folder.rglob('*')
          if path.is_file() and path.name != '.lock'}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
  """Returns a function that makes and packs a run, then enters a new folder.

  The function returns the path of the bundle.
  """
  def moved(make):
    (tmp_path / 'a').mkdir()
    (tmp_path / 'b').mkdir()
    monkeypatch.chdir(tmp_path / 'a')
    make()
    bundle.pack(tmp_path / 'all.tar', [ENTRY], RESULTS)
    monkeypatch.chdir(tmp_path / 'b')
    return tmp_path / 'all.tar'

  return moved


def _unpack(path):
  bundle.unpack(path, [ENTRY], RESULTS)


def test_a_stopped_run_has_its_newest_state_and_the_best_it_names(
    elsewhere, tmp_path):
  path = elsewhere(_begun)
  _unpack(path)
  there = _files(tmp_path / 'a' / FOLDER)
  dropped = {'checkpoints/last/100/memory/metadata',
             'checkpoints/last/100/state/array',
             'checkpoints/best/200/default/array'}
  assert dropped < there.keys()
  assert _files(FOLDER) == {
      name: content for name, content in there.items() if name not in dropped}
  _unpack(path)  # changes nothing
  assert [p.name for p in FOLDER.parent.iterdir()] == [FOLDER.name]


def test_a_finished_run_has_no_checkpoints(elsewhere):
  def make():
    _finished()
    record = RESULTS / 'runs' / FOLDER.parts[1] / (
        f'{FOLDER.parts[2]}-{FOLDER.name}.json')
    record.parent.mkdir(parents=True)
    shutil.copy(RECORD, record)
    shutil.copy(RECORD, record.with_name('another.json'))

  path = elsewhere(make)
  _unpack(path)
  assert sorted(_files(FOLDER)) == [
      'config.json', 'env.json', 'metrics.jsonl', 'result.json']
  assert [p.read_bytes() for p in RESULTS.rglob('*.json')] == [
      RECORD.read_bytes()]


def _other_data():
  _begun(100)
  files.write_json(FOLDER / 'env.json', {'data_fingerprint': 'g'})


@pytest.mark.parametrize('make, kept, said', [
    (lambda: _begun(300), True, 'it is at step 300, the run in the bundle at'),
    (_finished, True, 'it is at step'),
    (lambda: _begun(200, points='y'), True, 'differs from the run in the'),
    (_other_data, True, 'it was trained on other data'),
    (lambda: _begun(100), False, '')])
def test_a_run_that_is_further_or_another_one_is_kept(
    elsewhere, capsys, make, kept, said):
  path = elsewhere(_begun)
  make()
  before = _files(FOLDER)
  capsys.readouterr()
  _unpack(path)
  assert (_files(FOLDER) == before) is kept
  lines = [line for line in capsys.readouterr().out.splitlines()
           if ' is kept: ' in line]
  assert len(lines) == kept and said in ''.join(lines)
  assert [p.name for p in FOLDER.parent.iterdir()] == [FOLDER.name]


def test_runs_of_another_sweep_stay_in_the_bundle(elsewhere, capsys):
  path = elsewhere(_begun)
  other = sweep.Entry(ENTRY.flags, FOLDER.with_name('0-s0'))
  bundle.unpack(path, [other], RESULTS)
  assert not pathlib.Path('runs').exists()
  assert '1 runs and records of the bundle' in capsys.readouterr().out


def _tar(path, members, manifest=None):
  """Writes a manifest and `members`, (TarInfo or name, bytes), to a tar file.

  By default the manifest fits the members.
  """
  if manifest is None:
    manifest = {m if isinstance(m, str) else m.name: {
        'bytes': len(data), 'sha256': hashlib.sha256(data).hexdigest()}
        for m, data in members}
  text = json.dumps({'files': manifest}).encode()
  with tarfile.open(path, 'w') as tar:
    for member, data in [('manifest.json', text), *members]:
      if isinstance(member, str):
        member = tarfile.TarInfo(member)
      if member.type == tarfile.REGTYPE:
        member.size = len(data)
      tar.addfile(member, io.BytesIO(data))


def _special(name, kind, target=''):
  member = tarfile.TarInfo(name)
  member.type, member.linkname = kind, target
  return member


def _config(content=None):
  return (f'{FOLDER}/config.json',
          json.dumps(CONFIG if content is None else content).encode())


@pytest.mark.parametrize('member, why', [
    (('/etc/passwd', b'x'), 'outside'),
    ((f'{FOLDER}/../../x', b'x'), 'outside'),
    ((f'{FOLDER}/./x', b'x'), 'has a name'),
    ((f'{FOLDER}/a\nb', b'x'), 'has a name'),
    ((_special(f'{FOLDER}/l', tarfile.SYMTYPE, '/etc'), b''), 'regular file'),
    ((_special(f'{FOLDER}/l', tarfile.LNKTYPE, 'x'), b''), 'regular file'),
    ((_special(f'{FOLDER}/d', tarfile.CHRTYPE), b''), 'regular file'),
    ((_special(f'{FOLDER}/p', tarfile.FIFOTYPE), b''), 'regular file'),
    ((_special(f'{FOLDER}/p', tarfile.DIRTYPE), b''), 'regular file'),
    (_config(), 'is there twice')])
def test_a_hostile_member_is_refused(tmp_path, monkeypatch, member, why):
  monkeypatch.chdir(tmp_path)
  _tar('bad.tar', [_config(), member])
  with pytest.raises(UserError, match=why):
    _unpack(pathlib.Path('bad.tar'))
  assert [path.name for path in tmp_path.iterdir()] == ['bad.tar']


def _about(size=None, digest=None):
  name, data = _config()
  return {name: {'bytes': len(data) if size is None else size,
                 'sha256': digest or hashlib.sha256(data).hexdigest()}}


@pytest.mark.parametrize('manifest, why', [
    ({}, 'is not in manifest.json'),
    (_about(size=3), 'another size'),
    (_about(digest='0' * 64), 'differs from manifest.json'),
    (_about() | {'runs/a/b/c/d': {'bytes': 1, 'sha256': ''}}, 'is missing'),
    ([], 'cannot be read'), ({'a': 3}, 'cannot be read')])
def test_what_differs_from_the_manifest_is_refused(
    tmp_path, monkeypatch, manifest, why):
  monkeypatch.chdir(tmp_path)
  _tar('bad.tar', [_config()], manifest)
  with pytest.raises(UserError, match=why):
    _unpack(pathlib.Path('bad.tar'))
  assert not FOLDER.exists()
  assert not list(tmp_path.rglob('config.json'))


def test_what_is_too_large_is_refused(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  _tar('bad.tar', [_config(), (f'{FOLDER}/x', b'y' * 100)])
  monkeypatch.setattr(bundle, 'MAX_BYTES', len(_config()[1]) + 99)
  with pytest.raises(UserError, match='larger than a bundle can be'):
    _unpack(pathlib.Path('bad.tar'))


@pytest.mark.parametrize('config', [{}, [], CONFIG | {'seed': 17}])
def test_the_config_of_another_run_is_refused(tmp_path, monkeypatch, config):
  monkeypatch.chdir(tmp_path)
  _tar('bad.tar', [_config(config)])
  with pytest.raises(UserError, match='is not the config of this run'):
    _unpack(pathlib.Path('bad.tar'))
  assert not FOLDER.exists()


@pytest.mark.parametrize('cut', [0, 100, 600, 3000, -12_000])
def test_a_file_that_is_cut_off_is_refused(elsewhere, cut):
  path = elsewhere(_begun)
  path.write_bytes(path.read_bytes()[:cut])
  with pytest.raises(UserError):
    _unpack(path)
  assert not FOLDER.exists()
  with pytest.raises(UserError, match='cannot be used'):
    _unpack(pathlib.Path('nothing.tar'))


KILLED = """
import os, pathlib, signal, sys
from lra.many import bundle, sweep
name, count = sys.argv[1], int(sys.argv[2])
before = getattr(bundle.os if name == 'rename' else bundle, name)
def kill(*of):
  global count
  count -= 1
  if not count:
    os.kill(os.getpid(), signal.SIGKILL)
  return before(*of)
setattr(bundle.os if name == 'rename' else bundle, name, kill)
bundle.unpack(pathlib.Path(sys.argv[3]), [sweep.Entry(
    ('a', '--config.seed=0'), pathlib.Path(sys.argv[4]))],
    pathlib.Path('results'))
"""


@pytest.mark.every(4)
@pytest.mark.parametrize('at', [
    ('_extract', 1), ('_extract', 4), ('_check_run', 1), ('rename', 1),
    ('rename', 2)])
@pytest.mark.parametrize('here', [True, False])
def test_kill_9_leaves_no_half_of_a_run(elsewhere, tmp_path, here, at):
  """A kill leaves the old run or none; unpacking again completes the new one.
  """
  if at[1] == 2 and not here:
    pytest.skip('nothing is moved away')
  path = elsewhere(_begun)
  if here:
    _begun(100)
  old = _files(FOLDER)
  done = subprocess.run(
      [sys.executable, '-c', KILLED, at[0], str(at[1]), str(path), str(FOLDER)],
      check=False, env={**os.environ, 'PYTHONPATH': str(ROOT)})
  assert done.returncode == -signal.SIGKILL
  # Between the two renames there is no run; the bundle still has the newer one.
  assert _files(FOLDER) == ({} if at == ('rename', 2) else old)
  _unpack(path)
  assert (FOLDER / 'checkpoints/last/200/state/array').read_bytes() == (
      tmp_path / 'a' / FOLDER / 'checkpoints/last/200/state/array').read_bytes()
  assert [p.name for p in FOLDER.parent.iterdir()] == [FOLDER.name]


SWEEP = '\n'.join(
    f'configs/{name}.py:listops_mini ' + tiny.words(**{
        'train.steps': 2000, 'train.eval_every': 250, 'train.log_every': 10,
        'train.eval_batch_size': 100})
    for name in ('simpletron', 'linear_transformer'))


def _start(folder, data_dir, *more):
  folder.mkdir(exist_ok=True)
  (folder / 'sweep.txt').write_text(SWEEP)
  return subprocess.Popen(
      [sys.executable, str(ROOT / 'run_lra.py'), '--sweep=sweep.txt',
       '--results_dir=results', f'--compile_cache={folder.parent / "xla"}',
       *more], cwd=folder, text=True, stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT),
           'TFDS_DATA_DIR': str(data_dir)})


def _results(folder):
  return {path.parent.as_posix().rpartition('runs/')[2]: [
      files.read_json(path)[name] for name in (
          'status', 'steps', 'best_step', 'val', 'test')]
          for path in folder.glob('runs/*/*/*/result.json')}


@pytest.mark.full
def test_a_sweep_goes_on_from_its_bundle_elsewhere(mini_data, tmp_path):
  """The continued sweep has the results of a sweep that was not stopped."""
  whole = _start(tmp_path / 'whole', mini_data)
  said, _ = whole.communicate()
  assert whole.returncode == 0, said
  one = _start(tmp_path / 'one', mini_data, '--bundle=../all.tar')
  second = 'runs/listops_mini/linear_transformer/*/metrics.jsonl'
  while not list((tmp_path / 'one').glob(second)):
    assert one.poll() is None
    time.sleep(0.01)
  one.send_signal(signal.SIGTERM)
  said, _ = one.communicate()
  assert one.returncode == 75, said
  two = _start(tmp_path / 'two', mini_data, '--from_bundle=../all.tar',
               '--max_minutes=60')
  said, _ = two.communicate()
  assert two.returncode == 0, said
  assert '2 runs of ../all.tar are here.' in said
  assert '[1 of 2 runs are finished]' in said
  assert _results(tmp_path / 'two') == _results(tmp_path / 'whole')
  assert len(_results(tmp_path / 'two')) == 2
  stopped = _results(tmp_path / 'one')
  assert sorted(status for status, *_ in stopped.values()) == ['ok', 'stopped']
