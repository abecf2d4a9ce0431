"""Tests that versions agree, and the files that GitHub reads."""

import configparser
import re

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
      'README.md': re.search(r'version = \{(.*)\}', _text('README.md'))[1],
      'CHANGELOG.md': re.search(
          r'^## (\d+\.\d+\.\d+)$', _text('CHANGELOG.md'), re.MULTILINE)[1],
  } == dict.fromkeys(('CITATION.cff', 'README.md', 'CHANGELOG.md'),
                     config['metadata']['version'])


def test_github_runs_every_part():
  """The parts are those of the line in .ci/run that lists all of them."""
  parts = re.search(r'^parts=\((.*)\)$', _text('.ci/run'), re.MULTILINE)[1]
  job, = yaml.safe_load(_text('.github/workflows/ci.yml'))['jobs'].values()
  assert job['strategy']['matrix']['part'] == parts.split()
  assert job['steps'][-1]['run'] == '.ci/run ${{ matrix.part }}'
  asked = re.findall(r'^if wanted (.*); then$', _text('.ci/run'), re.MULTILINE)
  assert set(' '.join(asked).split()) == set(parts.split())


@pytest.mark.parametrize('path', sorted(
    path for path in (ROOT / '.github/ISSUE_TEMPLATE').glob('*.yml')
    if path.stem != 'config'), ids=lambda path: path.stem)
def test_a_form_has_what_github_asks_for(path):
  form = yaml.safe_load(path.read_text('utf-8'))
  assert form['name'] and form['description']
  for field in form['body']:
    assert field['type'] in ('input', 'textarea', 'dropdown', 'checkboxes')
    assert field['attributes']['label']
