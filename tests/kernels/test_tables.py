"""Tables find their place in the README of the kernels."""

import io
import sys

import pytest

from kernels.tools import readme

TABLE = '| a |\n|---|\n| \\1 |'


def test_a_table_replaces_the_one_before():
  text = 'x\n<!-- errors:begin -->\nold\n<!-- errors:end -->\ny\n'
  once = readme.put(text, 'errors', TABLE)
  assert once == f'x\n<!-- errors:begin -->\n{TABLE}\n<!-- errors:end -->\ny\n'
  assert readme.put(once, 'errors', TABLE) == once


def test_nothing_is_lost_to_an_empty_table_or_a_wrong_name():
  text = readme.README.read_text(encoding='utf-8')
  with pytest.raises(ValueError, match='no table'):
    readme.put(text, 'errors', '')
  with pytest.raises(ValueError, match="no section 'speed'"):
    readme.put(text, 'speed', TABLE)


@pytest.mark.parametrize('section', ['errors', 'h200', 'bytes'])
def test_the_readme_has_every_table(section):
  text = readme.README.read_text(encoding='utf-8')
  _, inside = text.split(f'<!-- {section}:begin -->')
  assert '|---' in inside.split(f'<!-- {section}:end -->')[0]


@pytest.mark.parametrize('arguments, code', [
    (['--help'], 0), (['--all'], 2), ([], 2), (['errors', 'h200'], 2)])
def test_asking_for_help_writes_nothing(monkeypatch, arguments, code):
  monkeypatch.setattr(sys, 'argv', ['readme', *arguments])
  monkeypatch.setattr(sys, 'stdin', io.StringIO(TABLE))
  monkeypatch.setattr(readme, 'put', lambda *_: 1 / 0)
  with pytest.raises(SystemExit) as end:
    readme.main()
  assert end.value.code == code


def test_a_table_from_standard_input_is_written(monkeypatch, tmp_path):
  monkeypatch.setattr(readme, 'README', tmp_path / 'README.md')
  readme.README.write_text('<!-- bytes:begin -->\n<!-- bytes:end -->\n')
  monkeypatch.setattr(sys, 'argv', ['readme', 'bytes'])
  monkeypatch.setattr(sys, 'stdin', io.StringIO(TABLE))
  readme.main()
  assert TABLE in readme.README.read_text()
