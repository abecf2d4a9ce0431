"""Tests the commit and file hashes that a result stores."""

import dataclasses
import hashlib

import pytest

from lra import models
from lra.run import provenance
from tests.helpers import small


def _experiment(made_by=''):
  config = small.config('transformer', 'listops')
  return dataclasses.replace(small.experiment(config), made_by=made_by)


def test_without_a_command_the_model_is_known():
  made = provenance.of_files(_experiment())
  source = (models.FOLDER / 'transformer.py').read_bytes()
  assert made['model_sha256'] == hashlib.sha256(source).hexdigest()
  assert made['config_sha256'] is None
  assert _experiment().changes is None


def test_the_config_file_of_the_command_is_hashed(tmp_path):
  """A config file outside git is hashed and the run counts as modified."""
  path = tmp_path / 'mine.py'
  path.write_text('x')
  made = provenance.of_files(_experiment(f'{path}:listops'))
  assert made['config_sha256'] == hashlib.sha256(b'x').hexdigest()
  assert made['git_dirty'] in (True, None)
  assert (made['git_dirty'] is None) == (made['git_commit'] is None)


def test_models_that_share_a_file_have_its_hash(capsys, tmp_path):
  source = (models.FOLDER / 'spectral.py').read_bytes()
  made = [provenance.of_files(small.experiment(small.config(name, 'listops')))
          for name in ('gmm_prf', 'fastfood_rks')]
  assert {m['model_sha256'] for m in made} == {
      hashlib.sha256(source).hexdigest()}
  provenance.warn_of_edits(
      [(tmp_path, 'gmm_prf', '0' * 64)], provenance.FINISHED)
  assert capsys.readouterr().err.startswith('lra/models/spectral.py has ')


NOW = {'git_commit': 'b', 'git_dirty': False, 'model_sha256': '2',
       'config_sha256': None, 'kernel': 'xla'}


@pytest.mark.parametrize('before, commits, dirty', [
    ({}, [], False),
    ({'git_commit': 'b', 'git_dirty': False, 'model_sha256': '2'}, [], False),
    ({'git_commit': 'a', 'git_dirty': False, 'model_sha256': '2'}, ['a', 'b'],
     False),
    ({'git_commit': 'a', 'git_dirty': True}, ['a', 'b'], True),
    ({'git_commit': 'b', 'git_dirty': False, 'model_sha256': '1'}, [], True),
    ({'git_commit': 'c', 'git_commits': ['b', 'c'], 'git_dirty': False},
     ['b', 'c'], False),
    ({'git_commit': None, 'git_dirty': None}, [], False)])
def test_a_resumed_run_says_what_all_its_processes_were(
    before, commits, dirty):
  made = provenance.continued(before, NOW)
  several = {'git_commits': commits} if commits else {}
  assert made == {**NOW, **several, 'git_dirty': dirty, 'git_published': None}


@pytest.mark.parametrize('before, now, all_of_them', [
    (True, True, True), (True, False, False), (False, True, False),
    (None, True, None), (None, False, False), (True, None, None)])
def test_a_resumed_run_is_published_if_all_its_commits_are(
    before, now, all_of_them):
  made = provenance.continued({'git_commit': 'a', 'git_published': before},
                              {**NOW, 'git_published': now})
  assert made['git_published'] is all_of_them


@pytest.mark.parametrize('before, now, kept', [
    ({}, ['-a'], ['-a']), ({'xla_flags': ['-b']}, [], ['-b']), ({}, [], None),
    ({'xla_flags': ['-b', '-a']}, ['-a', '-c'], ['-b', '-a', '-c'])])
def test_a_resumed_run_has_the_flags_of_all_its_processes(before, now, kept):
  made = provenance.continued(before, {**NOW, 'xla_flags': now})
  assert made['xla_flags'] == (kept or [])


def test_runs_of_an_older_file_are_named(tmp_path, monkeypatch, capsys):
  """A warning names runs of an older model file.

  Runs without a stored hash, or whose file is gone, are not named.
  """
  monkeypatch.setattr(models, 'FOLDER', tmp_path)
  (tmp_path / 'mine.py').write_text('x')
  now = hashlib.sha256(b'x').hexdigest()
  runs = [(tmp_path / name, 'mine', digest) for name, digest in (
      ('a', now), ('b', None), *((c, '0' * 64) for c in 'cdefg'))]
  provenance.warn_of_edits(
      [*runs, (tmp_path / 'h', 'lost', now)], provenance.FINISHED)
  c, d, e = (tmp_path / name for name in 'cde')
  line, = capsys.readouterr().err.splitlines()
  assert line.startswith('lra/models/mine.py ')
  assert f' {c}, {d}, {e} and 2 more ' in line and provenance.FINISHED in line
  assert not any(str(tmp_path / name) in line for name in 'abfgh')
  provenance.warn_of_edits(runs[:2], provenance.FINISHED)
  assert not capsys.readouterr().err
