"""A URL given as a path is refused in one sentence and makes no folder `gs:`.
"""

import functools
import os
import pathlib

import pytest

import lra
from lra import data_prep
from lra.cli.command import USER_ERROR
from lra.core import paths
from lra.core.errors import UserError
from lra.run import loader
from lra.run.experiment import resolve
from tests.helpers import commands

URL = 'gs://my-bucket/a'
MINI = '--config=simpletron:listops_mini', '--norecord'
DATA = '--task=listops_mini',
CASES = [
    (*MINI, f'--workdir={URL}'), (*MINI, f'--config.data_dir={URL}'),
    (*MINI, f'--results_dir={URL}'), (*MINI, f'--compile_cache={URL}'),
    (f'--config={URL}/own.py:listops_mini',), ('runs', URL),
    ('evaluate', URL), ('predict', 'x.txt', URL), ('curves', 'x.png', URL),
    (*DATA, f'--data_dir={URL}'), (*DATA, f'--source={URL}')]


def assert_refused(done, folder, url=URL):
  assert done.returncode == USER_ERROR, done
  assert len(done.stderr.splitlines()) == 1 and not done.stdout, done
  assert url in done.stderr and 'mount the bucket' in done.stderr
  assert not list(folder.iterdir())


@pytest.mark.parametrize('arguments', CASES, ids=' '.join)
def test_no_flag_takes_one(tmp_path, arguments):
  program = 'data_prep' if DATA[0] in arguments else 'run_lra'
  assert_refused(commands.run(program, *arguments, cwd=tmp_path), tmp_path)


@pytest.mark.parametrize('path', [
    URL, pathlib.Path(URL), 's3://b/x', 'HTTPS://host/x.tar.gz', 'file:///a',
    pathlib.Path('hdfs://b')])
def test_python_takes_none_either(tmp_path, monkeypatch, path):
  monkeypatch.chdir(tmp_path)
  for call in (lambda: lra.load(path),
               lambda: data_prep.prepare('listops_mini', path),
               lambda: data_prep.prepare('listops_mini', source=path),
               lambda: resolve(
                   loader.made_by(['--config=simpletron:parity']),
                   folder=path)):
    with pytest.raises(UserError, match='is a URL'):
      call()
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize('path', [
    'a\0b', pathlib.Path('\0'), '\ud800', None, 3, b'a'])
def test_what_is_no_path_is_named(path):
  for call in (lambda: lra.load(path), lambda: paths.local(path),
               lambda: data_prep.prepare('listops_mini', source=path or '\0')):
    with pytest.raises(UserError, match='is no path'):
      call()


@pytest.mark.parametrize('path', [
    'a', './gs:', 'a:b/c', 'a/gs://b', '/gs:/b', 'C:', 'x:/y', ''])
def test_colons_are_allowed_in_names(path):
  assert paths.local(path) == path


def test_a_config_is_refused_before_its_run(monkeypatch):
  config, probe = (
      functools.partial(resolve, loader.made_by([f'--config={made_by}']),
                        made_by=made_by)
      for made_by in ('simpletron:listops_mini', 'simpletron:parity'))
  monkeypatch.setenv('TFDS_DATA_DIR', URL)
  with pytest.raises(UserError, match=f'TFDS_DATA_DIR={URL} is a URL'):
    config()
  probe()  # a probe task needs no data folder
  config.args[0].data_dir = 'here'
  config()
