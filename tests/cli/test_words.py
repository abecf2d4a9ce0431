"""Tests that words are translated to the flags of their command."""

import re

import pytest
from absl import flags
from absl.testing import flagsaver

from lra.cli import options, words
from lra.core.errors import UserError
from tests.helpers import commands


@pytest.mark.parametrize('said, meant', [
    ('', ''),
    ('--list', '--list'),
    ('train --config=a.py:text --seeds=0-2', '--config=a.py:text --seeds=0-2'),
    ('evaluate RUN --lengths 64,128', '--evaluate=RUN --lengths 64,128'),
    ('predict f.txt RUN --compile_cache=',
     '--predict=f.txt --compile_cache= RUN'),
    ('compare A B', '--compare A B'),
    ('curves a.png A B C', '--curves=a.png A B C'),
    ('export here RUN --push=a/b', '--export=here --push=a/b RUN'),
    ('sweep s.txt --status', '--sweep=s.txt --status'),
    ('suite state --plan', '--suite=state --plan'),
    ('leaderboard --html=site', '--leaderboard --html=site'),
    ('evaluate --help', '--help')])
def test_a_word_is_the_flag_of_its_name(said, meant):
  assert words.flags(said.split()) == meant.split()


def test_each_command_has_a_word():
  assert {'train', *options.COMMANDS} - {'config'} == {*words.FORMS}


@pytest.mark.parametrize('word', sorted(words.FORMS))
def test_the_flags_of_a_word_are_taken(word):
  form = words.FORMS[word].replace('...', 'RUN').split()
  with flagsaver.flagsaver():
    flags.FLAGS(['lra', *words.flags([word, *form])])
    options.check()
    assert word == 'train' or flags.FLAGS[word].value


@pytest.mark.parametrize('said, named', [
    ('evalute RUN', "'evalute': did you mean .* evaluate"),
    ('dta --task=text', "'dta': did you mean .* data"),
    ('a.py:text', '--config=a.py:text'),
    ('xyzzy', 'choose one of train, '),
    ('train x', 'train .* x '), ('list x --html=a', 'list .* x '),
    ('compare A', 'compare needs RUN RUN'),
    ('curves a.png', 'curves needs FIGURE RUN'),
    ('evaluate --lengths=64 RUN', 'evaluate needs RUN directly')])
def test_a_wrong_word_is_named(said, named):
  with pytest.raises(UserError, match=named):
    words.flags(said.split())


def test_the_program_takes_words(tmp_path):
  done = commands.run('run_lra', 'compare', 'a', 'b', cwd=tmp_path)
  commands.assert_one_sentence(done, 'a')
  commands.assert_one_sentence(
      commands.run('run_lra', 'compare', 'a', cwd=tmp_path), 'compare needs')
  done = commands.run('run_lra', 'leaderboard', '--help', cwd=tmp_path)
  assert '--html' in done.stdout and '--sweep' not in done.stdout


@pytest.mark.parametrize('word', sorted(words.FORMS))
def test_the_help_of_a_word_has_the_flags_of_its_command(word):
  name = 'config' if word == 'train' else word
  found = re.findall('^  --(.*?): ', options.summary(word), re.MULTILINE)
  assert {*found} == {name, *options.COMMANDS[name]}
