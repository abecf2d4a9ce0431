"""Writes the pages of docs/reference/ from the code: fields and flags.

python docs/reference.py
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

# ruff: noqa: E402
from absl import flags

from lra.cli import options, words
from lra.core import paths
from lra.run import describe
from lra.schema.fields import FIELDS

_WRITTEN = '<!-- Written by `python docs/reference.py`. -->\n\n'
_FIELDS = """# Config fields

Change a field on the command line, as in `--config.train.steps=100`. A protocol
sets the fields that have no default. `--print_config` prints the fields of one
config, with their values and the arguments of its mechanism.
"""
_FLAGS = """# Flags

`run_lra.py` and the installed command `lra` take the same flags. Each table
lists one command and the flags that it takes.

A command may also be a word, directly after the program's name; its flags then
follow. For example, `python run_lra.py evaluate RUN --lengths=64` is `python
run_lra.py --evaluate=RUN --lengths=64`. `python run_lra.py evaluate --help`
describes these flags.

| word | flags |
| :-- | :-- |
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
                 f'{_cell(describe.describe(field))} |')
  return '\n'.join(lines) + '\n'


def flags_page() -> str:
  """The page of command-line flags."""
  lines = [_WRITTEN + _FLAGS + '\n'.join(
      f'| `{f"{word} {form}".strip()}` | `{" ".join(words.flags(said))}` |'
      for word, form in words.FORMS.items()
      for said in [[word, *form.replace(' ...', ' RUN').split()]]).replace(
          '| `` |', '| `--config=...` |')]
  for command, others in options.COMMANDS.items():
    lines.append(f'\n## --{command}\n\n| flag | default | meaning |'
                 '\n| :-- | :-- | :-- |')
    for name in (command, *sorted(others)):
      flag = flags.FLAGS[name]
      default = flag.default
      if name == 'results_dir':
        default = str(paths.results().relative_to(paths.ROOT))
      shown = f'`{default}`' if default or default == 0 and (
          default is not False) else '–'
      lines.append(f'| `--{name}` | {shown} | {_cell(flag.help)} |')
  return '\n'.join(lines) + '\n'


def pages() -> dict[pathlib.Path, str]:
  """File -> its text."""
  folder = HERE / 'reference'
  return {folder / 'fields.md': fields(), folder / 'flags.md': flags_page()}


def _cell(text):
  """Plain text as the cell of a table."""
  for character in '\\<*_|[':
    text = text.replace(character, f'\\{character}')
  return text


if __name__ == '__main__':
  for path, text in pages().items():
    path.write_text(text, encoding='utf-8')
