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
      'CHANGELOG.md': re.search(
          r'^## (\d+\.\d+\.\d+)$', _text('CHANGELOG.md'), re.MULTILINE)[1],
  } == dict.fromkeys(('CITATION.cff', 'CHANGELOG.md'),
                     config['metadata']['version'])
