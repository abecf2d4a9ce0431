"""The wheel has every file that the README uses; it works in an empty folder.
"""

import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import zipfile

import pytest

from lra.core import files
from tests.helpers import tiny
from tests.helpers.paths import ROOT

# Folders that are linked from lra/, as which they are installed.
LINKED = ('configs', 'kernels', 'data_prep')
MINI = ['--config=configs/simpletron.py:listops_mini', *tiny.flags(**{
    'train.steps': 3, 'train.eval_batch_size': 100})]
pytestmark = pytest.mark.full
pytest.importorskip('setuptools', '77', 'setuptools 77 is not installed')


def _pip(*arguments):
  done = subprocess.run(
      [sys.executable, '-m', 'pip', '--quiet', *arguments], text=True,
      capture_output=True, check=False)
  assert done.returncode == 0, done.stderr


def _copy(folder):
  """Copies the sources, because building writes into them."""
  for name in ('lra', *LINKED):
    shutil.copytree(ROOT / name, folder / name, symlinks=True,
                    ignore=shutil.ignore_patterns('__pycache__', '.*'))
  for name in ('run_lra.py', 'setup.cfg', 'pyproject.toml', 'README.md',
               'LICENSE'):
    shutil.copy(ROOT / name, folder)


def test_an_editable_install_is_found_beside_a_checkout_named_lra(tmp_path):
  """Python finds the package, not the folder `lra` of the checkout."""
  checkout, built = tmp_path / 'lra', tmp_path / 'built'
  built.mkdir()
  _copy(checkout)
  made = subprocess.run(
      [sys.executable, '-c', 'import sys\nfrom setuptools import build_meta\n'
       'build_meta.build_editable(sys.argv[1])', str(built)],
      cwd=checkout, text=True, capture_output=True, check=False)
  assert made.returncode == 0, made.stderr
  wheel, = built.glob('*.whl')
  zipfile.ZipFile(wheel).extractall(built)
  done = subprocess.run(
      [sys.executable, '-S', '-c', 'import site, sys\n'
       'site.addsitedir(sys.argv[1])\nimport lra\nprint(lra.__file__)',
       str(built)], cwd=tmp_path, text=True, capture_output=True, check=False,
      env={name: value for name, value in os.environ.items()
           if name != 'PYTHONPATH'})
  assert done.stdout.strip() == str(checkout / 'lra' / '__init__.py'), done


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
  """Builds a wheel of the sources."""
  folder = tmp_path_factory.mktemp('wheel')
  _copy(folder / 'source')
  _pip('wheel', '--no-deps', '--no-build-isolation', '--wheel-dir',
       str(folder), str(folder / 'source'))
  made, = folder.glob('*.whl')
  return made


def test_every_file_but_records_models_and_figures_is_in_it(wheel):
  ours = {str(base / path.relative_to(folder))
          for base in (pathlib.Path('lra'), *(
              pathlib.Path('lra') / name for name in LINKED))
          for folder in [(ROOT / base).resolve()]
          for path in folder.rglob('*')
          if path.is_file() and '__pycache__' not in path.parts
          and not path.name.startswith('.')}
  ours = {name for name in ours if not name.startswith(
      ('lra/examples/models/', 'lra/results/figures/', 'lra/results/runs/',
       'lra/results/studies/'))}
  packed = {name for name in zipfile.ZipFile(wheel).namelist()
            if '.dist-info/' not in name}
  assert packed == {*ours, 'run_lra.py'}


def _hashes(folder):
  return {str(path.relative_to(folder)):
          hashlib.sha256(path.read_bytes()).hexdigest()
          for path in folder.rglob('*') if path.is_file()}


def test_the_installed_command_works_in_an_empty_folder(wheel, tmp_path):
  site, here = tmp_path / 'site', tmp_path / 'here'
  here.mkdir()
  _pip('install', '--no-deps', '--no-index', '--no-compile', '--target',
       str(site), str(wheel))
  before = _hashes(site)

  def ended(*command):
    return subprocess.run(
        command, cwd=here, text=True, capture_output=True, check=False,
        env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(site),
             'PYTHONDONTWRITEBYTECODE': '1', 'HOME': str(tmp_path / 'home'),
             'TFDS_DATA_DIR': str(here / 'data')})

  def run(*command):
    done = ended(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout

  lra = lambda *arguments: run(str(site / 'bin' / 'lra'), *arguments)
  assert 'simpletron' in lra('list')
  without = ended(str(site / 'bin' / 'lra'), 'board')
  assert without.returncode and not without.stdout
  assert '--results_dir' in without.stderr and not list(here.iterdir())
  lra('data', '--task=listops_mini')
  said = lra(*MINI, '--record')
  assert 'Records are in results' in said and 'wrote leaderboard.md' in said
  record, = (here / 'results' / 'runs' / 'listops_mini').iterdir()
  task = here / 'leaderboard' / 'listops_mini.md'
  row = '| 1 | [simpletron, '
  assert row in task.read_text()
  # An installed package has no commit, even inside some repository.
  kept = files.read_json(record)
  assert kept['git_commit'] is None
  assert kept['config_sha256'] == before['lra/configs/simpletron.py']
  short = ['--config=simpletron:listops_mini', *MINI[1:]]
  assert 'finished already' in lra(*short, '--norecord')

  changes = (flag.removeprefix('--config.').partition('=')
             for flag in MINI[1:])
  (here / 'a.toml').write_text('\n'.join([
      '[[runs]]', 'models = ["simpletron"]', 'tasks = ["listops_mini"]',
      'seeds = "0-1"', *(f'set.{name} = "{value}"'
                         for name, _, value in changes)]))
  assert '2 of 2 runs are finished' in lra('runs', 'a.toml', '--norecord')
  assert 'runs are finished' in lra('runs', 'mini', '--status')
  (here / 'leaderboard.md').unlink()
  lra('--leaderboard')
  page = task.read_text()
  assert row in page and 'run_lra' not in page
  assert '`lra --leaderboard`' in (here / 'leaderboard.md').read_text()
  shown, = re.findall(r'\[0\]\((\S+)\) \| `(lra --config=.*)` \|', page)
  assert (task.parent / shown[0]).resolve() == record.resolve()
  assert 'finished already' in lra(*shlex.split(shown[1])[1:], '--norecord')
  assert _hashes(site) == before
