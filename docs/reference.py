"""Writes the pages of docs/reference/ from the code: fields and flags.

python docs/reference.py
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

# ruff: noqa: E402
from absl import flags

from lra.cli import arguments, options
from lra.core import paths
from lra.data_prep import __main__ as data
from lra.run import check
from lra.schema.fields import FIELDS

_WRITTEN = '<!-- Written by `python docs/reference.py`. -->\n\n'
_FIELDS = """# Config fields

Change a field on the command line, as in `--config.train.steps=100`. A protocol
sets the fields that have no default. `--print_config` prints the fields of one
config, with their values and the arguments of its mechanism.
"""
_FLAGS = """# Flags

`run_lra.py` and the installed command `lra` take the same arguments. A word
chooses the command, and flags alone train a run. The flags of a word are in
`python run_lra.py WORD --help`, too.
"""


def fields() -> str:
  """The page of config fields."""
  lines, group = [_WRITTEN + _FIELDS], None
  for name, field in FIELDS.items():
    first = name.rpartition('.')[0]
    if first != group:
      group = first
      lines.append(f'\n## {group or "General"}\n\n| field | default | meaning |'
                   '\n| :-- | :-- | :-- |')
    default = '–' if field.default is None else f'`{field.default!r}`'
    lines.append(f'| `{name}` | {default} | '
                 f'{_cell(check.meaning(field))} |')
  return '\n'.join(lines) + '\n'


def flags_page() -> str:
  """The page of command-line flags."""
  lines = [_WRITTEN + _FLAGS.rstrip()]
  for word, what in arguments.WORDS.items():
    rows = _training() if word == 'train' else _of_word(word)
    lines.append(f'\n## {word}\n\n{what.capitalize()}.\n\n'
                 '| flag | default | meaning |\n| :-- | :-- | :-- |')
    lines += [f'| `{name}` | {_default(default)} | {_cell(text)} |'
              for name, default, text in rows]
  return '\n'.join(lines) + '\n'


def _training():
  """Yields (flag, default, meaning) of training."""
  for name in ['config', *sorted(options.names() - {'config'})]:
    yield f'--{name}', flags.FLAGS[name].default, flags.FLAGS[name].help


def _of_word(word):
  """Yields (argument, default, meaning) of a word."""
  parser = data.parser() if word == 'data' else arguments.Parser(word)
  for action in parser._actions:
    if action.dest != 'help' and action.help != argparse.SUPPRESS:
      text = action.help and action.help % {'default': _default(action.default)}
      yield (action.option_strings or [action.metavar or action.dest])[0], (
          action.default), text or ''


def _default(value):
  """A default as a cell."""
  if isinstance(value, pathlib.Path | str):
    value = str(value).replace(f'{paths.ROOT}/', '')
  return f'`{value}`' if value or (value == 0 and value is not False) else '–'


def pages() -> dict[pathlib.Path, str]:
  """File -> its text."""
  folder = HERE / 'reference'
  return {folder / 'fields.md': fields(), folder / 'flags.md': flags_page()}


def _cell(text):
  """Plain text as the cell of a table."""
  text = ' '.join(text.split())
  for character in '\\<*_|[':
    text = text.replace(character, f'\\{character}')
  return text


if __name__ == '__main__':
  for path, text in pages().items():
    path.write_text(text, encoding='utf-8')
