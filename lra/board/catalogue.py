"""Reads descriptions of the models from `lra/models` without importing them.

`python -m lra.board.catalogue` writes `lra/models/README.md` from them, and
from the measurements of tests/peers.
"""

import argparse
import ast
import csv
import functools
import os
import pathlib
import re
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from lra import models
from lra.board.markdown import Markup, code, table
from lra.core import files, paths
from lra.core.formats import aligned, count, plain

MODELS = models.FOLDER
PEERS = paths.PACKAGED / 'peers.csv'
REFERENCE = 'transformer'
# Order of the sections; a family not named here follows them by name.
FAMILIES = ('dense', 'local', 'sparse', 'low-rank', 'linear', 'kernel',
            'state space')
# Family of a model that has no file in lra/models.
OTHER = 'other'
_TEMPLATE = pathlib.Path(__file__).parent / 'templates' / 'models.md'


class Entry(NamedTuple):
  """One model: its name in configs, its `file` in lra/models without `.py`, the
  title of its paper, a sentence, two lines of its docstring, and its
  `lra.models.About`, whose exponents of L are the `growth` of time and memory.
  """
  name: str
  file: str
  title: str
  summary: str
  equation: str
  source: str
  family: str
  cost: str
  growth: Mapping[str, float]
  kernels: tuple[str, ...] = ()
  mixes_padding: bool = False


def _is_text(value):
  return isinstance(value, str) and bool(value.strip())


# Field of `About` -> a test of its values.
_VALID = {
    'family': _is_text, 'cost': _is_text, 'time': (1, 1.5, 2).__contains__,
    'memory': (1, 1.5, 2).__contains__, 'kernels': lambda x: (
        isinstance(x, tuple) and all(map(_is_text, x))),
    'mixes_padding': lambda x: isinstance(x, bool)}


def read(folder: str | os.PathLike = MODELS) -> list[Entry]:
  """Returns the models of `folder`, by name; leaves out those with problems."""
  found = (_entry(name, folder) for name in models.names(folder))
  return [e for e in found if isinstance(e, Entry)]


def problems(folder: str | os.PathLike = MODELS) -> list[str]:
  """Returns a sentence for each model of `folder` that `read` leaves out."""
  found = (problem(name, folder) for name in models.names(folder))
  return list(filter(None, found))


def problem(name: str, folder: str | os.PathLike = MODELS) -> str:
  """Returns the sentence for one model, '' if `read` has it."""
  found = _entry(name, folder)
  return found if isinstance(found, str) else ''


def family(model: str) -> str:
  return _family_of().get(model, OTHER)


@functools.cache
def _family_of():
  return {entry.name: entry.family for entry in read()}


def _entry(name, folder):
  """Returns the entry of a model, or a sentence with the fault of its file."""
  file, cls = models.place(name)
  path = pathlib.Path(folder) / f'{file}.py'
  try:
    tree = ast.parse(files.read(path).decode())
    mixer = next((node for node in tree.body if isinstance(node, ast.ClassDef)
                  and node.name == cls), None)
    if mixer is None:
      raise LookupError(f'define the class {cls}, or move a file that is no '
                        'model to another folder')
    # Models that share a file have docstrings of their own.
    doc = ast.get_docstring(tree if cls == 'Mixer' else mixer) or ''
    return Entry(name, file, **_described(doc),
                 **_about([*mixer.body, *tree.body]))
  except SyntaxError as error:
    why = f'line {error.lineno} is not Python ({error.msg}), mend it'
  except LookupError as error:
    why = error.args[0]
  except (OSError, ValueError) as error:
    why = f'it cannot be read ({error}), restore it'
  return f'{path}: {why}.'


def _described(doc):
  """Returns the fields in a docstring; LookupError if one is missing."""
  title, colon, summary = ' '.join(doc.split('\n\n')[0].split()).partition(': ')
  if not colon:
    raise LookupError('begin its docstring with "Name: what it is."')
  found = {'title': title, 'summary': summary}
  for key in ('Equation', 'Source'):
    lines = re.findall(rf'^{key}:(.*(?:\n[ \t]+\S.*)*)', doc, re.MULTILINE)
    if len(lines) != 1 or not lines[0].strip():
      raise LookupError(f'its docstring needs one line "{key}: ...", continued '
                        'on indented lines')
    found[key.lower()] = ' '.join(lines[0].split())
  return found


def _about(body):
  """Returns the fields in ABOUT; LookupError if it is missing or not valid."""
  written = next((
      node.value for node in body if isinstance(node, ast.Assign)
      and ast.unparse(node.targets[0]) == 'ABOUT'), None)
  try:
    about = models.About(*map(ast.literal_eval, written.args), **{
        given.arg: ast.literal_eval(given.value)
        for given in written.keywords})
    wrong = [name for name, is_valid in _VALID.items()
             if not is_valid(getattr(about, name))]
  except (AttributeError, TypeError, ValueError):
    wrong = ['family and cost']
  if wrong:
    raise LookupError(
        f"give it a valid {wrong[0]} by ABOUT = About('linear', 'O(L D^2)', "
        'time=1, memory=1), all literals, exponents of L 1, 1.5 or 2')
  fields = about._asdict()
  growth = {name: fields.pop(name) for name in ('time', 'memory')}
  return {**fields, 'growth': growth}


def families(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
  """Groups entries by family, in the order of FAMILIES."""
  known = {name: [] for name in FAMILIES}
  for entry in sorted(entries, key=lambda e: (e.family, e.name)):
    known.setdefault(entry.family, []).append(entry)
  return {name: members for name, members in known.items() if members}


def read_peers(path: str | os.PathLike = PEERS) -> list[dict[str, str]]:
  """Returns the rows of a table that tests/peers wrote, by column."""
  with open(path, encoding='utf-8', newline='') as f:
    return list(csv.DictReader(f))


def readme(entries: Iterable[Entry],
           peers: Iterable[Mapping[str, str]] = ()) -> str:
  """Returns the text of lra/models/README.md; for `peers` see `read_peers`."""
  import jinja2  # imported late, since runs need no templates
  entries = list(entries)
  names = [e.name for e in entries]
  rows = sorted((row for row in peers if row['model'] in names),
                key=lambda row: (row['model'], row['package']))
  compared = {row['model'] for row in rows}
  made = {family.capitalize(): table(
      ['model', 'what', 'equation', 'cost', 'kernels', 'padding', 'source'],
      [[Markup(f'[`{e.name}`]({e.file}.py)'),
        Markup(f'**{e.title}**: {e.summary}'), code(e.equation), code(e.cost),
        ', '.join(e.kernels), 'mixes padding' if e.mixes_padding else '',
        Markup(e.source)] for e in members])
          for family, members in families(entries).items()}
  beside = table(['model', 'package', 'outputs', 'gradients', 'test'], [
      [code(row['model']), f'{row["package"]} {row["version"]}', row['output'],
       row['gradient'], Markup('[`{2}`](../../tests/peers/{0}.py)'.format(
           *row['test'].partition('.')))] for row in rows],
      right=('outputs', 'gradients'))
  return jinja2.Template(
      files.read(_TEMPLATE).decode(), trim_blocks=True,
      keep_trailing_newline=True).render(
          families=made, peers=rows and beside, alone=rows and ', '.join(
              code(name) for name in names if name not in compared))


def write_readme(folder: str | os.PathLike = MODELS) -> pathlib.Path:
  """Writes README.md into `folder`, and returns its path."""
  path = pathlib.Path(folder) / 'README.md'
  files.write_all({path: readme(read(folder), read_peers()).encode()})
  return path


def listing(params: Mapping[str, Mapping[str, int]] | None = None,
            folder: str | os.PathLike = MODELS,
            states: Mapping[str, int] | None = None,
            wanted: Container[str] | None = None) -> str:
  """Returns the plain-text table of `run_lra.py list`, then the problems.

  `params` is model -> task -> number of parameters: tasks become columns in the
  order in which they first occur, with the ratio to `REFERENCE`. `states` is
  model -> state size of a layer. If only some models are `wanted`, there are no
  problems.
  """
  params, states = params or {}, states or {}
  columns = list(dict.fromkeys(t for by in params.values() for t in by))
  base = params.get(REFERENCE, {})

  def against(model, task):
    number = params.get(model, {}).get(task)
    ratio = f' {number / base[task]:.2f}x' if number and base.get(task) else ''
    return '-' if number is None else count(number) + ratio
  lines = [['model', 'family', 'paper (arXiv)', *columns, 'state size', 'cost']]
  for family, members in families(
      e for e in read(folder) if wanted is None or e.name in wanted).items():
    lines += [[e.name, family, paper(e.source),
               *(against(e.name, task) for task in columns),
               count(states[e.name]) if e.name in states else '-', e.cost]
              for e in members]
  lines = aligned(lines, right=range(3, len(lines[0]) - 1))
  more = problems(folder) if wanted is None else []
  return ''.join(f'{line}\n' for line in lines + more)


def paper(source: str) -> str:
  """Returns authors, year and arXiv number of the first paper of a source."""
  found = re.match(r'.*?arXiv \d{4}\.\d{4,5}', source)
  return plain(found[0].replace('arXiv ', '') if found else source, 60)


if __name__ == '__main__':
  argparse.ArgumentParser(
      prog='python -m lra.board.catalogue',
      description='Writes README.md beside the models.').parse_args()
  print(write_readme())
