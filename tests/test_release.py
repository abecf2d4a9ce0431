"""Tests that versions agree, and the files that GitHub reads."""

import configparser
import functools
import os
import re
import shutil
import subprocess

import pytest

from tests.helpers.paths import ROOT

yaml = pytest.importorskip('yaml')


def _text(name):
  return (ROOT / name).read_text('utf-8')


def test_every_file_names_one_version():
  config = configparser.ConfigParser()
  config.read(ROOT / 'setup.cfg')
  assert {
      'CITATION.cff': yaml.safe_load(_text('CITATION.cff'))['version'],
      'CHANGELOG.md': re.search(
          r'^## (\d+\.\d+\.\d+)$', _text('CHANGELOG.md'), re.MULTILINE)[1],
  } == dict.fromkeys(('CITATION.cff', 'CHANGELOG.md'),
                     config['metadata']['version'])


def test_a_release_is_the_version_of_its_tag():
  """The line of the workflow that compares them, run for two tags."""
  job = yaml.safe_load(_text('.github/workflows/release.yml'))['jobs']['build']
  line, = [step['run'] for step in job['steps']
           if 'GITHUB_REF_NAME' in step.get('run', '')]
  version = re.search(
      r'^version = (.*)$', _text('setup.cfg'), re.MULTILINE)[1]
  for tag, code in ((f'v{version}', 0), (f'v{version}0', 1)):
    assert subprocess.run(
        ['bash', '-c', line], cwd=ROOT, check=False,
        env={**os.environ, 'GITHUB_REF_NAME': tag}).returncode == code


@pytest.mark.full
def test_the_pages_have_a_folder_for_each_tag(tmp_path):
  """A small repository with two tags, the first without documentation."""
  pytest.importorskip('furo')
  root = tmp_path / 'made'
  (root / '.ci').mkdir(parents=True)
  shutil.copy(ROOT / '.ci/pages', root / '.ci')
  git = functools.partial(subprocess.run, cwd=root, check=True)
  name = ('git', '-c', 'user.name=a', '-c', 'user.email=a@b')
  git([*name, 'init', '-q'])
  git([*name, 'commit', '-q', '--allow-empty', '-m', 'none'])
  git([*name, 'tag', 'v0.1.0'])
  (root / 'docs').mkdir()
  (root / 'docs/conf.py').write_text("project = 'made'\n")
  for text, tag in (('first', 'v0.2.0'), ('second', None)):
    (root / 'docs/index.rst').write_text(f'{text}\n{len(text) * "="}\n')
    git([*name, 'add', '.'])
    git([*name, 'commit', '-q', '-m', text])
    if tag:
      git([*name, 'tag', tag])
  site = tmp_path / 'site'
  git(['.ci/pages', str(site)])
  assert 'second' in (site / 'main/index.html').read_text()
  assert 'first' in (site / 'v0.2.0/index.html').read_text()
  assert re.findall('href="(.*?)"', (site / 'index.html').read_text()) == [
      'main/index.html', 'v0.2.0/index.html']
  assert not (site / 'v0.1.0').exists()
