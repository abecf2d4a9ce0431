"""Tests words and values of --grid against a shell's and Python's."""

import ast
import shlex

import pytest

from lra.core.errors import UserError
from lra.schema import grid


@pytest.mark.parametrize('line', [
    '', '  ', 'a b\tc  d', 'a#b c', '"x y"=3 \'z\'', "''", r'a\ b', r'"a\.b"',
    r"""a='(("b\\.c",None),)'""", 'a="it\'s"', r'"say \"a\""', 'a=(1,2) b=[3]'])
def test_words_are_those_of_a_shell(line):
  assert grid.words(line) == shlex.split(line)


@pytest.mark.parametrize('value', [
    '(("encoder/.*", None), (".*", {"learning_rate": 0.01}))', '[[(1, 2)], []]',
    r'"[(,\""', "('it\\'s', '#')"])
def test_a_value_in_brackets_is_one_for_python(value):
  changed = f'a=[{value}, ({value},)]'
  assert grid.words(f'{changed} b') == [changed, 'b']
  first, second = grid.values(changed)
  assert ast.literal_eval(second.removeprefix('a=')) == (
      ast.literal_eval(value),)
  if value[0] in '([':
    assert first == f'a={value}'


def test_texts_in_quotes_are_values_without_them():
  assert grid.values('a=["x, y",z]') == ['a=x, y', 'a=z']
  assert grid.values('a=(1,2)') == ['a=(1,2)']


@pytest.mark.parametrize('line, words', [
    ('a=[1,2 b', 'closing ]'), ('a=1]', 'has a ]'),
    ('a=(]', 'has a ]'), ('a=[(1,2]', 'has a ]'),
    ('a "b', 'No closing quotation'), ('a=["b]', 'No closing quotation')])
def test_what_is_not_closed_is_refused(line, words):
  with pytest.raises(UserError, match=words):
    grid.words(line)


@pytest.mark.parametrize('values', ['', ',', '1,,2', ',1', '1,', '1, ,2', '""'])
def test_an_empty_value_is_refused(values):
  with pytest.raises(UserError, match=r'^a=\[.*value: '):
    grid.values(f'a=[{values}]')


def test_as_many_as_are_counted_are_made():
  changes = ['a=[1,(2,3)]', 'b=3', 'c=["x,y",z,w]']
  assert grid.count(changes) == len(grid.combinations(changes)) == 6
  assert grid.count([]) == len(grid.combinations([])) == 1


def test_many_values_are_counted_without_being_combined():
  changes = [f'{name}=[{",".join(map(str, range(3000)))}]' for name in 'abcd']
  assert grid.count(changes) == 3000 ** 4
  with pytest.raises(UserError, match='^81,000,000,000,000 runs .--grid'):
    grid.check_count(grid.count(changes), '--grid')
