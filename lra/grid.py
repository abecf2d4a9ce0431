"""The words of a sweep's line or of --grid, and the values of `field=[a,b]`.

Quotes are those of a shell, but in brackets, where they belong to a value as
Python reads it, and whitespace parts no words.
"""

import itertools
import math
import re
import shlex
from collections.abc import Iterable

from lra.errors import UserError

_CLOSING = {'(': ')', '[': ']', '{': '}'}
# A text in quotes, a character behind a backslash, characters that mean nothing
# here, or one character.
_TOKEN = re.compile(
    r'''"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\.|[^\s"'\\,#()\[\]{}]+|.''',
    re.DOTALL)
MOST_RUNS = 10_000  # of a command: each has a config that must be made first
_MANY_RUNS = 200


def words(line: str) -> list[str]:
  """The words of a line; `#` begins a comment.

  Raises:
    UserError: a bracket or a quote has no other one.
  """
  return [word for word in _parts(line, ' \t\f\v', comments=True)
          if word is not None]


def check(words: list[str]) -> list[str]:
  """The words of a line, none of which is a flag or repeats a field.

  Raises:
    UserError: one is, or does.
  """
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
  """What to add to a problem that one of some changes is, '' for nothing."""
  for change in changes:
    name, _, value = change.partition('=')
    if name in problem and ',' in value and value[0] not in '([{':
      return f' (several values go in brackets: {name}=[{value}])'
  return ''


def count(changes: list[str]) -> int:
  """How many `combinations` there are, without making them.

  Raises:
    UserError: see `values`.
  """
  return math.prod(len(values(change)) for change in changes)


def check_count(runs: int, what: str) -> str:
  """What to say before the configs of so many runs are made, '' for nothing.

  Args:
    runs: that are asked for.
    what: asks for them, such as '--grid'.

  Raises:
    UserError: they are more than a command makes.
  """
  if runs > MOST_RUNS:
    raise UserError(
        f'{runs:,} runs are asked for by {what}, and a command makes at most '
        f'{MOST_RUNS:,}: give fewer values or seeds, or several commands.')
  return (f'The configs of {runs:,} runs are being made.'
          if runs > _MANY_RUNS else '')


def combinations(changes: list[str]) -> list[tuple[str, ...]]:
  """Each combination of the `values` of several changes.

  Raises:
    UserError: see `values`.
  """
  return list(itertools.product(*map(values, changes)))


def values(change: str) -> list[str]:
  """`field=a` and `field=b` of `field=[a,b]`; a change itself without these.

  Raises:
    UserError: a value is empty, or a bracket or a quote has no other one.
  """
  name, _, value = change.partition('=')
  if not (value.startswith('[') and value.endswith(']')):
    return [change]
  parts = [part and part.strip() for part in _parts(value[1:-1], ',')]
  if not all(parts):
    what = 'an empty value' if any(parts) else 'no value'
    raise UserError(f'{change} has {what}: write values with a comma between '
                    'two of them.')
  return [f'{name}={part}' for part in parts]


def _parts(text, separators, comments=False):
  """Parts of a text between separators that no bracket or quote encloses.

  None where there is nothing, not even an empty text in quotes.
  """
  parts, closing = [None], []  # None or the tokens of a part
  for token in _TOKEN.findall(text):
    if comments and token == '#':
      break
    if not closing and token in separators:
      parts.append(None)
      continue
    parts[-1] = parts[-1] or []
    parts[-1].append(_plain(token, text, bool(closing)))
    if token in _CLOSING:
      closing.append(_CLOSING[token])
    elif token in _CLOSING.values() and (
        not closing or closing.pop() != token):
      raise UserError(f'{text} closes with {token} what it has not opened.')
  if closing:
    raise UserError(f'{text} opens a bracket that no {closing[-1]} closes.')
  return [part and ''.join(part) for part in parts]


def _plain(token, text, enclosed):
  """A token without the quotes or the backslash that a shell would remove."""
  if token in ('"', "'"):
    raise UserError(f'No closing quotation: {text} has one {token} too many.')
  if token[0] in '"\'':
    return token if enclosed else shlex.split(token)[0]
  return token[-1] if token[0] == '\\' else token
