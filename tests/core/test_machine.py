"""Tests of the git commit, "modified" flag and hardware that a run records."""

import importlib.util
import os
import shutil
import subprocess

import jax
import pytest

from lra.core import machine

NOTHING = dict.fromkeys(('git_commit', 'git_dirty', 'git_published'))


def git(folder, *args):
  return subprocess.run(
      ('git', '-c', 'user.name=a', '-c', 'user.email=a@b', *args), cwd=folder,
      check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
  """Commits a small repository with a copy of `lra.core.machine`."""
  root = tmp_path / 'checkout'
  for name in ('lra/core/machine.py', 'lra/models/known.py',
               'lra/results/runs/x.json', 'lra/nn/a.py', 'configs/known.py',
               'leaderboard.md', 'docs/leaderboard/text.md', 'notes.txt'):
    put(root, name, '1\n')
  shutil.copy(machine.__file__, root / 'lra/core')
  (root / '.gitignore').write_text('ignored*\n/runs/\n')
  git(root, 'init', '-q', '-b', 'main')
  git(root, 'add', '-A')
  git(root, 'commit', '-qm', 'all')
  return root


def module_of(root):
  """Returns the copy of `machine` in `root`."""
  spec = importlib.util.spec_from_file_location(
      'machine_of_checkout', root / 'lra/core/machine.py')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def state(root, *names):
  """Returns `git_state(names)` from the copy of `machine` in `root`."""
  return module_of(root).git_state([root / name for name in names])


def put(root, name, text='2\n'):
  (root / name).parent.mkdir(parents=True, exist_ok=True)
  (root / name).write_text(text)


def test_commits_and_files_of_the_past(checkout, monkeypatch):
  ours, old = module_of(checkout), git(checkout, 'rev-parse', 'HEAD')
  with monkeypatch.context() as patch:  # as in a hook of another repository
    patch.setenv('GIT_DIR', os.devnull)
    assert state(checkout)['git_commit'] == old
  assert state(checkout, 'lra/models/known.py', 'configs/known.py') == {
      'git_commit': old, 'git_dirty': False, 'git_published': True}
  put(checkout, 'lra/models/known.py', ' 2 \n\n')
  git(checkout, 'switch', '-q', '-c', 'mine')
  git(checkout, 'commit', '-qam', 'mine')
  new = ours.git_state()['git_commit']
  assert ours.is_commit(old) and ours.is_commit(new)
  assert (ours.published(old), ours.published(new)) == (True, False)
  assert ours.file_at(old, 'lra/models/known.py') == b'1\n'
  assert ours.file_at(new, 'lra/models/known.py') == b' 2 \n\n'
  assert ours.file_at(old, 'lra/models/unknown.py') is None
  # Git would take these for the name of a branch, a file or a flag.
  for text in ('HEAD', 'main', f'{old}:notes.txt', f'--{old[2:]}', 'f' * 40):
    assert not ours.is_commit(text) and ours.published(text) is None
    assert ours.file_at(text, 'notes.txt') is None


def test_a_commit_is_published_once_the_known_branch_has_it(
    checkout, tmp_path):
  """With a remote, the remote's default branch counts, not the local main."""
  git(tmp_path, 'init', '-q', '--bare', '-b', 'trunk', 'origin.git')
  git(checkout, 'switch', '-q', '-c', 'mine')
  put(checkout, 'notes.txt')
  git(checkout, 'commit', '-qam', 'mine')
  for published, *steps in (
      (False,),
      (True, 'switch -q main', 'merge -q --ff-only mine'),
      (False, f'remote add origin {tmp_path}/origin.git',
       'push -q origin main~:refs/heads/trunk',
       'remote set-head origin trunk'),
      (True, 'push -q origin main:trunk'),
      (None, 'remote remove origin', 'branch -qm main other',
       'branch -qD mine')):
    for step in steps:
      git(checkout, *step.split())
    assert state(checkout)['git_published'] is published, steps


def _put(name, text='2\n'):
  return lambda root: put(root, name, text)


def _staged(root):
  put(root, 'configs/new.py')
  git(root, 'add', 'configs/new.py')


def _chowned(root):
  if os.geteuid():
    pytest.skip('only root can change owners')
  for path in (root, *root.rglob('*')):
    os.chown(path, 1234, 1234)


@pytest.mark.parametrize('change, files, dirty', [
    *((_put(name), (), True) for name in (
        'lra/models/new.py', 'configs/mine/new.py', 'kernels/new.py',
        'data_prep/new.py', 'lra/nn/a.py', 'notes.txt')),
    # What runs write, and what does not run.
    *((_put(name), (), False) for name in (
        'leaderboard.md', 'docs/leaderboard/text.md', 'lra/results/runs/x.json',
        'lra/results/runs/y.json', 'runs/a/config.json', 'scratch.txt',
        'lra/notes.txt', 'configs/ignored.py', '../elsewhere.py')),
    (_staged, (), True),
    (lambda root: (root / 'lra/nn/a.py').unlink(), (), True),
    (_put('configs/ignored.py'), ('configs/ignored.py',), True),
    (_put('../elsewhere.py'), ('../elsewhere.py',), True),
    (_chowned, (), False)])
def test_what_makes_a_commit_modified(checkout, change, files, dirty):
  change(checkout)
  found = state(checkout, *files)
  assert len(found['git_commit']) == 40 and found['git_dirty'] is dirty


def test_a_repository_around_the_package_is_not_its_own(checkout, tmp_path):
  shutil.rmtree(checkout / '.git')
  git(tmp_path, 'init', '-q')
  git(tmp_path, 'add', '-A')
  git(tmp_path, 'commit', '-qm', 'all')
  assert state(checkout) == NOTHING
  (checkout / '.git').mkdir()  # git ignores it, and goes on to the parent
  assert state(checkout) == NOTHING


@pytest.mark.parametrize('value, kept', [
    (None, []), ('', []), (' --a=1  --b\n', ['--a=1', '--b']),
    ('--xla_force_host_platform_device_count=2', []),
    ('--xla_force_host_platform_device_count=2 --a', ['--a']),
    ('--a=' + 'x' * 2000, ['--a=' + 'x' * 996]),
    ('--xla_dump_to=/home/alice/secret --b=2', ['--xla_dump_to', '--b=2']),
    ('--a=~alice --b=.\\alice', ['--a', '--b']),
    ('/home/alice/flags.txt', ['XLA_FLAGS'])])
def test_the_flags_of_xla(monkeypatch, value, kept):
  monkeypatch.delenv('XLA_FLAGS', raising=False)
  if value is not None:
    monkeypatch.setenv('XLA_FLAGS', value)
  assert machine.xla_flags() == kept
  with jax.default_matmul_precision('highest'):
    assert machine.xla_flags() == [
        *kept, 'JAX_DEFAULT_MATMUL_PRECISION=highest']


@pytest.mark.parametrize('device, platforms, plugins, expected', [
    ('nvidia0', '', ['jax_plugins'], 'NVIDIA H200'),
    ('nvidia0', 'cuda', ['jax_plugins'], 'NVIDIA H200'),
    ('nvidia0', 'cpu', ['jax_plugins'], ''), ('nvidia0', '', [], ''),
    ('nvidiactl', '', ['jax_plugins'], ''), ('accel0', '', ['libtpu'], 'TPU'),
    ('vfio/0', '', ['libtpu'], 'TPU'), ('accel0', '', [], '')])
def test_an_accelerator_is_known_without_jax(
    tmp_path, monkeypatch, device, platforms, plugins, expected):
  information = tmp_path / 'proc/driver/nvidia/gpus/0000:01:00.0/information'
  for path in (information, tmp_path / 'dev' / device):
    path.parent.mkdir(parents=True)
    path.touch()
  information.write_text('Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\n')
  monkeypatch.setenv('JAX_PLATFORMS', platforms)
  monkeypatch.setattr(
      machine.importlib.util, 'find_spec', lambda name: name in plugins or None)
  assert machine.accelerator(tmp_path) == expected
