"""Names of files in the README work from any current directory."""

import importlib.util
import pathlib

import pytest

from lra.core import paths
from lra.core.errors import UserError
from lra.many import jobs
from lra.run import loader, writers
from lra.run.experiment import resolve


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  return tmp_path


def test_what_comes_with_the_program_is_found(elsewhere):
  ours = paths.ROOT / 'configs'
  assert paths.found('configs/runs/mini.toml') == ours / 'runs/mini.toml'
  for name in ('simpletron', 'configs/simpletron.py'):
    assert paths.config_file(name) == ours / 'simpletron.py'


def test_what_is_in_the_current_folder_comes_first(elsewhere):
  (elsewhere / 'configs').mkdir()
  (elsewhere / 'configs' / 'simpletron.py').touch()
  for name in ('simpletron', 'configs/simpletron.py'):
    assert paths.config_file(name) == pathlib.Path('configs/simpletron.py')
  (elsewhere / 'simpletron').mkdir()
  assert paths.config_file('simpletron').parent == pathlib.Path('configs')
  (elsewhere / 'simpletron').rmdir()
  (elsewhere / 'simpletron').touch()
  assert paths.config_file('simpletron') == pathlib.Path('simpletron')


@pytest.mark.parametrize('name', [
    'run_lra.py', 'lra/cli/main.py', 'configs/../setup.cfg', 'a/' * 999,
    'configs/nobody.py', 'simpletron.py', '/configs/simpletron.py'])
def test_nothing_else_is(elsewhere, name):
  assert paths.config_file(name) == pathlib.Path(name)


@pytest.mark.parametrize('said, parts', [
    ('a:b/my.py:listops_mini', ['a:b/my.py', 'listops_mini']),
    ('a:b/my.py', ['a:b/my.py']),
    ('my.py:listops,protocol=nystrom', ['my.py', 'listops,protocol=nystrom']),
    ('my.py:', ['my.py', '']),
    ('my.py:x:y.py', ['my.py', 'x:y.py']),
    ('simpletron:listops', ['simpletron', 'listops']),
    ('simpletron', ['simpletron']),
    ('no_suffix:x:y', ['no_suffix', 'x:y']),
])
def test_what_a_config_is_parted_into(said, parts):
  assert paths.config_parts(said) == parts


def test_a_config_may_be_in_a_folder_with_a_colon(elsewhere):
  folder = elsewhere / 'a:b'
  folder.mkdir()
  (folder / 'my.py').write_bytes(
      (paths.ROOT / 'configs' / 'simpletron.py').read_bytes())
  said = f'{folder}/my.py:listops_mini'
  made = loader.made_by([f'--config={said}'])
  assert made.task == 'listops_mini' and made.model.name == 'simpletron'
  assert resolve(made, made_by=said).config_file == folder / 'my.py'


def test_an_installed_package_keeps_nothing_in_itself(tmp_path, monkeypatch):
  assert paths.results() == paths.ROOT / 'lra' / 'results'
  assert paths.page() == paths.ROOT / 'leaderboard.md'
  monkeypatch.setattr(paths, 'ROOT', tmp_path)
  (tmp_path / 'lra-1.dist-info').mkdir()
  assert paths.results() == pathlib.Path('results')
  assert paths.page() == pathlib.Path('leaderboard.md')


def test_an_optional_part_is_installed_as_the_rest_was(tmp_path, monkeypatch):
  assert paths.extra('baselines') == "pip install -e '.[baselines]'"
  monkeypatch.setattr(paths, 'ROOT', tmp_path)
  (tmp_path / 'lra-1.dist-info').mkdir()
  assert paths.extra('baselines') == "pip install 'lra[baselines]'"
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(UserError, match=r"installed: pip install 'lra\[slurm\]'"):
    jobs.check('slurm')
  with pytest.raises(UserError, match=r"installed: pip install 'lra\[wandb\]'"):
    writers.check(['wandb'])
  monkeypatch.undo()
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(UserError, match=r"pip install -e '\.\[wandb\]'"):
    writers.check(['wandb'])


def test_records_elsewhere_have_their_page_beside_them(elsewhere, monkeypatch):
  own = pathlib.Path('own')
  assert paths.page_of(own) == own / 'leaderboard.md'
  assert paths.page_of(paths.results()) == paths.page()
  monkeypatch.chdir(paths.ROOT)
  assert paths.page_of(pathlib.Path('lra/results')) == paths.page()
