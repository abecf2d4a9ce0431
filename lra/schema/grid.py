"""Splits --grid and other texts into words, and `field=[a,b]` into values.

Quotes work as in a shell. Within brackets they belong to a value, as in Python,
and whitespace does not separate words.
"""

import itertools
import math
import re
import shlex
from collections.abc import Iterable
from typing import Any

from lra.core.errors import UserError

_CLOSING = {'(': ')', '[': ']', '{': '}'}
# A text in quotes, a character after a backslash, characters without a special
# meaning, or any one character.
_TOKEN = re.compile(
    r'''"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\.|[^\s"'\\,()\[\]{}]+|.''',
    re.DOTALL)
MOST_RUNS = 10_000  # most runs of a command, which makes all configs first
_MANY_RUNS = 200


def words(line: str) -> list[str]:
  return [word for word in _parts(line, ' \t\n\f\v') if word is not None]


def check(words: list[str]) -> list[str]:
  """Returns the words; UserError if one is a flag or repeats a field."""
  for word in words:
    if word.startswith('-'):
      plain = re.sub(r'^-+(config[.=]|grid=)?', '', word)
      raise UserError(f'{word} is a flag: write {plain} here.')
  names = [word.partition('=')[0] for word in words]
  for name in names:
    if names.count(name) > 1:
      raise UserError(f'{name} is given twice: name it once, several values as '
                      f'{name}=[a,b].')
  return words


def hint(changes: Iterable[str], problem: str) -> str:
  for change in changes:
    name, _, value = change.partition('=')
    if name in problem and ',' in value and value[0] not in '([{':
      return f' (several values go in brackets: {name}=[{value}])'
  return ''


def count(changes: list[str]) -> int:
  """Returns the number of `combinations`, without making them."""
  return math.prod(len(values(change)) for change in changes)


def check_count(runs: int, what: str) -> str:
  """Returns a message if the configs of so many runs take long, else ''."""
  if runs > MOST_RUNS:
    raise UserError(
        f'{runs:,} runs ({what}) are too many: a command makes at most '
        f'{MOST_RUNS:,}. Give fewer values or seeds, or use several commands.')
  return (f'Making the configs of {runs:,} runs.'
          if runs > _MANY_RUNS else '')


def combinations(changes: list[str]) -> list[tuple[str, ...]]:
  return list(itertools.product(*map(values, changes)))


def values(change: str) -> list[str]:
  """Splits `field=[a,b]` into `field=a` and `field=b`."""
  name, _, value = change.partition('=')
  if not (value.startswith('[') and value.endswith(']')):
    return [change]
  parts = [part and part.strip() for part in _parts(value[1:-1], ',')]
  if not all(parts):
    what = 'an empty value' if any(parts) else 'no value'
    raise UserError(f'{change} has {what}: separate the values by commas.')
  return [f'{name}={part}' for part in parts]


def _parts(text, separators):
  """Splits a text at separators outside of brackets and quotes."""
  parts: list[Any] = [None]  # None or the tokens of a part
  closing = []
  for token in _TOKEN.findall(text):
    if not closing and token in separators:
      parts.append(None)
      continue
    parts[-1] = parts[-1] or []
    parts[-1].append(_plain(token, text, bool(closing)))
    if token in _CLOSING:
      closing.append(_CLOSING[token])
    elif token in _CLOSING.values() and (
        not closing or closing.pop() != token):
      raise UserError(f'{text} has a {token} without an opening bracket.')
  if closing:
    raise UserError(f'{text} lacks a closing {closing[-1]}.')
  return [part and ''.join(part) for part in parts]


def _plain(token, text, enclosed):
  """Returns a token without the quotes or backslash that a shell would remove.
  """
  if token in ('"', "'"):
    raise UserError(f'No closing quotation: {text} has one {token} too many.')
  if token[0] in '"\'':
    return token if enclosed else shlex.split(token)[0]
  return token[-1] if token[0] == '\\' else token
