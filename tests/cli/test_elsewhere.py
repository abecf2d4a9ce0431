"""Tests that a flag of another command gets a sentence that names it."""

import sys

import pytest

import run_lra
from lra.cli import elsewhere, options
from tests.helpers import commands


@pytest.mark.parametrize('program, arguments, named', [
    ('run_lra', ['--source=aclImdb.tar.gz'], 'run_lra.py data'),
    ('run_lra', ['--nodrawn'], 'run_lra.py costs'),
    ('data_prep', ['--config=simpletron:text'], 'run_lra.py'),
    ('data_prep', ['--task=mqar', '--sweep=a.txt'], 'run_lra.py')])
def test_a_flag_of_another_command_gets_its_name(
    program, arguments, named, tmp_path):
  done = commands.run(program, *arguments, cwd=tmp_path)
  flag = arguments[-1].partition('=')[0].replace('--no', '--')
  commands.assert_one_sentence(done, flag, f'{named} ')


@pytest.mark.parametrize('flag, field', [
    ('lr', 'train.learning_rate'), ('batch_size', 'train.batch_size')])
def test_a_flag_that_is_a_field_gets_the_field(flag, field):
  done = commands.run('run_lra', f'--{flag}=1')
  commands.assert_one_sentence(done, f"'{flag}'", f'--config.{field}')


def test_each_flag_has_a_command():
  assert options.TRIAL.name == 'trial'  # the flags of training are defined
  assert elsewhere._command('describe') == 'data'
  assert elsewhere._command('launches') == 'costs'
  assert elsewhere._command('frobnicate') is None


@pytest.mark.parametrize('word, module', [
    ('data', 'lra.data_prep.__main__'), ('costs', 'tools.__main__')])
def test_a_word_chooses_the_command(word, module, monkeypatch):
  from lra.data_prep import __main__ as data
  from tools import __main__ as costs
  made = {'lra.data_prep.__main__': data, 'tools.__main__': costs}[module]
  seen = []
  for name in ('main', 'run'):
    if hasattr(made, name):
      monkeypatch.setattr(
          made, name, lambda *_, **__: seen.append([*sys.argv]) or 0)
  monkeypatch.setattr('lra.core.signals.listen', lambda: None)
  monkeypatch.setattr('lra.core.streams.keep', lambda: None)
  monkeypatch.setattr(sys, 'argv', ['lra', word, '--task=text'])
  try:
    run_lra.run()
  except SystemExit as end:
    assert end.code == 0
  assert seen == [['lra', '--task=text']]
