"""Reads descriptions of the models from `lra/models` without importing them.

`python -m lra.board.catalogue` writes `lra/models/README.md` from them, and
from the measurements of tests/peers.
"""

import argparse
import ast
import csv
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Mapping

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
# Exponents that `About` may have: L, L sqrt(L), L^2.
EXPONENTS = (1, 1.5, 2)

_TITLE = """\
# Models

`python -m lra.board.catalogue` generates this page from the files of this \
folder; do not edit it by hand. The first column has the values of \
`config.model.name`.

B is the batch size, L the length, H the number of heads, D the width of the \
model and Dh the width of a head. M is the number of landmarks, features or \
the like. The column "kernels" has the values of `config.model.kernel` besides \
`auto`. A model marked "mixes padding" also mixes the positions of padding, so \
the amount of padding can change its scores.

Two names of papers are missing because they are no mixers:

* Ghost attention (Touvron et al. 2023, Llama 2, arXiv 2307.09288, section \
3.3) is a recipe for dialogue data. It adds an instruction to every turn of \
sampled dialogues, and removes it again from all turns but the first to train \
on them. The attention itself is unchanged, and our tasks have no turns.
* Imputer (Chan et al. 2020, arXiv 2002.08926) is a scheme to decode. It fills \
a sequence in a constant number of steps, and its loss sums over alignments by \
dynamic programming. Its layers are those of a Transformer, and our tasks \
generate no sequences.
"""
_PEERS = """\
## Comparison with other implementations

The table compares our models with those of other packages that have the same \
parameters, in float32 on a CPU. Each number is the largest \
||ours - theirs|| / ||theirs||, for outputs, and for gradients of the \
parameters and of the input. The test of a package states which parts are \
compared and what the package does differently. `pytest tests/peers \
--peers-table` measures the numbers. It needs the extra `peers` and PyTorch's \
wheel for CPUs (docs/contributing.md).
"""


@dataclasses.dataclass(frozen=True)
class Entry:
  """One model.

  Attributes:
    name: the value of `config.model.name`.
    file: its file in lra/models, without `.py`.
    title: the name in its paper.
    summary: its description, one sentence.
    equation, source: lines of its docstring.
    family, cost, kernels, mixes_padding: those of `lra.models.About`.
    growth: {'time': exponent of L, 'memory': exponent of L}.
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
    'family': _is_text, 'cost': _is_text, 'time': EXPONENTS.__contains__,
    'memory': EXPONENTS.__contains__, 'kernels': lambda x: (
        isinstance(x, tuple) and all(map(_is_text, x))),
    'mixes_padding': lambda x: isinstance(x, bool)}


def read(folder: str | os.PathLike = MODELS) -> list[Entry]:
  """Returns the models of `folder`, by name; leaves out those with problems."""
  return [e for e in _each(folder) if isinstance(e, Entry)]


def problems(folder: str | os.PathLike = MODELS) -> list[str]:
  """Returns a sentence for each model of `folder` that `read` leaves out."""
  return [e for e in _each(folder) if isinstance(e, str)]


def problem(name: str, folder: str | os.PathLike = MODELS) -> str:
  """Returns the sentence for one model, '' if `read` has it."""
  found = _entry(name, folder)
  return found if isinstance(found, str) else ''


def _each(folder):
  return (_entry(name, folder) for name in models.names(folder))


def _entry(name, folder):
  """Returns the entry of a model, or a sentence with the fault of its file."""
  file, cls = models.place(name)
  path = pathlib.Path(folder) / f'{file}.py'
  try:
    tree = ast.parse(files.read(path).decode())
    return Entry(name, file, **_described(tree, cls), **_about(tree, cls))
  except SyntaxError as error:
    why = f'line {error.lineno} is not Python ({error.msg}), mend it'
  except LookupError as error:
    why = error.args[0]
  except (OSError, ValueError) as error:
    why = f'it cannot be read ({error}), restore it'
  return f'{path}: {why}.'


def _described(tree, cls):
  """Returns the fields of an entry that its docstring gives.

  The docstring is that of the file, or of the class if models share the file.
  A missing one raises LookupError.
  """
  mixer = _class(tree, cls)
  if mixer is None:
    raise LookupError(f'define the class {cls}, or move a file that is no '
                      'model to another folder')
  doc = ast.get_docstring(tree if cls == 'Mixer' else mixer) or ''
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


def _class(tree, name):
  return next((node for node in tree.body if isinstance(node, ast.ClassDef)
               and node.name == name), None)


def _about(tree, cls):
  """Returns the fields of an entry that ABOUT gives, of the class or the file.

  A missing or invalid ABOUT raises LookupError.
  """
  written = next((
      node.value for node in (*_class(tree, cls).body, *tree.body)
      if isinstance(node, ast.Assign)
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
  return {'family': about.family, 'cost': about.cost, 'kernels': about.kernels,
          'growth': {'time': about.time, 'memory': about.memory},
          'mixes_padding': about.mixes_padding}


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
  """Returns the text of lra/models/README.md.

  Args:
    entries: the models.
    peers: see `read_peers`; those of other models are left out.
  """
  entries = list(entries)
  parts = [_TITLE]
  for family, members in families(entries).items():
    parts += [f'## {family.capitalize()}\n', table(
        ['model', 'what', 'equation', 'cost', 'kernels', 'padding', 'source'],
        [[Markup(f'[`{e.name}`]({e.file}.py)'),
          Markup(f'**{e.title}**: {e.summary}'), code(e.equation), code(e.cost),
          ', '.join(e.kernels), 'mixes padding' if e.mixes_padding else '',
          Markup(e.source)] for e in members]) + '\n']
  names = [e.name for e in entries]
  rows = sorted((row for row in peers if row['model'] in names),
                key=lambda row: (row['model'], row['package']))
  if rows:
    header = ['model', 'package', 'outputs', 'gradients', 'test']
    parts += [_PEERS, table(header, [
        [code(row['model']), f'{row["package"]} {row["version"]}',
         row['output'], row['gradient'], Markup(
             '[`{2}`](../../tests/peers/{0}.py)'.format(
                 *row['test'].partition('.')))] for row in rows],
        right=header[2:4]) + '\n']
    compared = {row['model'] for row in rows}
    alone = ', '.join(code(name) for name in names if name not in compared)
    if alone:
      parts.append('We know no package that computes the same function as: '
                   f'{alone}.\n')
  return '\n'.join(parts)


def write_readme(folder: str | os.PathLike = MODELS) -> pathlib.Path:
  """Writes README.md into `folder`, atomically, and returns its path."""
  path = pathlib.Path(folder) / 'README.md'
  files.write_all({path: readme(read(folder), read_peers()).encode()})
  return path


def listing(params: Mapping[str, Mapping[str, int]] | None = None,
            folder: str | os.PathLike = MODELS,
            states: Mapping[str, int] | None = None) -> str:
  """Returns the plain-text table of `run_lra.py list`, then the problems.

  Args:
    params: model -> task -> number of parameters; tasks become columns, in
      the order in which they first occur, with the ratio to `REFERENCE`.
    folder: the folder of the models.
    states: model -> state size of a layer.
  """
  params, states = params or {}, states or {}
  columns = list(dict.fromkeys(t for by in params.values() for t in by))
  base = params.get(REFERENCE, {})
  lines = [['model', 'family', 'paper (arXiv)', *columns, 'state size',
            'cost']]
  for family, members in families(read(folder)).items():
    for e in members:
      mine = params.get(e.name, {})
      lines.append([e.name, family, paper(e.source),
                    *(_against(mine.get(t), base.get(t)) for t in columns),
                    count(states[e.name]) if e.name in states else '-', e.cost])
  lines = aligned(lines, right=range(3, len(lines[0]) - 1))
  return ''.join(f'{line}\n' for line in lines + problems(folder))


def paper(source: str) -> str:
  """Returns authors, year and arXiv number of the first paper of a source."""
  found = re.match(r'.*?arXiv \d{4}\.\d{4,5}', source)
  return plain(found[0].replace('arXiv ', '') if found else source, 60)


def _against(number, reference):
  """Formats parameters and their ratio to the reference's."""
  if number is None:
    return '-'
  ratio = f' {number / reference:.2f}x' if reference else ''
  return count(number) + ratio


def main() -> None:
  """Writes README.md beside the models."""
  argparse.ArgumentParser(
      prog='python -m lra.board.catalogue', description=main.__doc__
  ).parse_args()
  print(write_readme())


if __name__ == '__main__':
  main()
