"""Tests that versions agree, and the files that GitHub reads."""

import configparser
import os
import re
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
