"""What the docstrings of `lra/models/*.py` say, read without importing them.

`python -m lra.catalogue` writes `lra/models/README.md` from it.
"""

import ast
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Mapping

from lra import files
from lra.errors import UserError
from lra.report.markdown import code, count, table

MODELS = pathlib.Path(__file__).resolve().parents[1] / 'models'
REFERENCE = 'transformer'
KEYS = ('Family', 'Equation', 'Cost', 'Source')
# Order of the sections; a family not named here follows them by name.
FAMILIES = ('dense', 'local', 'sparse', 'low-rank', 'linear', 'kernel')

_TITLE = """\
# Models

Generated from the docstrings of this folder by `python -m lra.catalogue`; \
never edited by hand. `config.model.name` is the name in the first column.

B batch, L length, H heads, D model width, Dh head width, M landmarks, \
features or other budget of the model. Kernels are the values of \
`config.model.kernel` besides `auto`. A model marked "mixes padding" mixes \
all positions by definition, so the amount of padding can change its scores.
"""


@dataclasses.dataclass(frozen=True)
class Entry:
  """One model.

  Attributes:
    name: its file in lra/models, the value of `config.model.name`.
    title: how its paper calls it.
    summary: what it is, one sentence.
    family, equation, cost, source: lines of its docstring.
    kernels: choices of `config.model.kernel` besides `auto`; empty if none.
    mixes_padding: whether padding can change scores.
  """
  name: str
  title: str
  summary: str
  family: str
  equation: str
  cost: str
  source: str
  kernels: tuple[str, ...]
  mixes_padding: bool


def read(folder: str | os.PathLike = MODELS) -> list[Entry]:
  """Returns the models of `folder`, by name.

  Raises:
    UserError: a model's docstring lacks its title or one of KEYS.
  """
  entries = []
  for path in sorted(pathlib.Path(folder).glob('*.py')):
    tree = _parse(path)
    if any(isinstance(node, ast.ClassDef) and node.name == 'Mixer'
           for node in tree.body):
      entries.append(_entry(path, tree))
  return entries


def _parse(path):
  try:
    return ast.parse(path.read_text(encoding='utf-8'))
  except SyntaxError as error:
    raise UserError(
        f'{path}, line {error.lineno} is not Python ({error.msg}): mend it.'
    ) from error


def _entry(path, tree):
  doc = ast.get_docstring(tree) or ''
  first = ' '.join(doc.split('\n\n')[0].split())
  title, colon, summary = first.partition(': ')
  if not colon:
    raise UserError(
        f'{path}: begin its docstring with "Name: what it is.".')
  fields = {key: _field(path, doc, key) for key in KEYS}
  return Entry(
      path.stem, title, summary,
      **{key.lower(): value for key, value in fields.items()},
      kernels=tuple(_constant(path, tree, 'KERNELS', ())),
      mixes_padding=bool(_constant(path, tree, 'MIXES_PADDING', False)))


def _field(path, doc, key):
  """The text after `key:`, with its indented continuation lines."""
  found = re.findall(rf'^{key}:(.*(?:\n[ \t]+\S.*)*)', doc, re.MULTILINE)
  if len(found) != 1 or not found[0].strip():
    raise UserError(
        f'{path}: its docstring needs one line "{key}: ...", continued on '
        'indented lines.')
  return ' '.join(found[0].split())


def _constant(path, tree, name, default):
  """Value of a module-level constant, following `other_module.NAME`."""
  for node in tree.body:
    if isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id == name for t in node.targets):
      return _value(path, node.value, name)
  return default


def _value(path, node, name):
  if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
    other = path.with_name(f'{node.value.id}.py')
    if other.exists() and other != path:
      return _constant(other, _parse(other), node.attr, ())
  try:
    return ast.literal_eval(node)
  except ValueError as error:
    raise UserError(
        f'{path}, line {node.lineno}: write {name} as a literal or as '
        '<module of this folder>.NAME.') from error


def families(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
  """Entries by family, in the order of FAMILIES."""
  known = {name: [] for name in FAMILIES}
  for entry in sorted(entries, key=lambda e: (e.family, e.name)):
    known.setdefault(entry.family, []).append(entry)
  return {name: members for name, members in known.items() if members}


def readme(folder: str | os.PathLike = MODELS) -> str:
  """Returns the text of lra/models/README.md."""
  parts = [_TITLE]
  for family, members in families(read(folder)).items():
    lines = [[f'[`{e.name}`]({e.name}.py)', f'**{e.title}**: {e.summary}',
              code(e.equation), code(e.cost), ', '.join(e.kernels),
              'mixes padding' if e.mixes_padding else '', e.source]
             for e in members]
    header = ['model', 'what', 'equation', 'cost', 'kernels', 'padding',
              'source']
    parts += [f'## {family.capitalize()}\n',
              table(header, lines) + '\n']
  return '\n'.join(parts)


def write_readme(folder: str | os.PathLike = MODELS) -> pathlib.Path:
  """Writes README.md into `folder`, atomically, and returns its path."""
  path = pathlib.Path(folder) / 'README.md'
  files.write_all({path: readme(folder).encode()})
  return path


def listing(entries: Iterable[Entry] | None = None,
            params: Mapping[str, Mapping[str, int]] | None = None) -> str:
  """The plain-text table of `run_lra.py --list`.

  Args:
    entries: the models; None reads those of lra/models.
    params: model -> task -> number of parameters; tasks become columns, in
      the order in which they first occur, with the ratio to `REFERENCE`.
  """
  entries = read() if entries is None else entries
  params = params or {}
  columns = list(dict.fromkeys(t for by in params.values() for t in by))
  base = params.get(REFERENCE, {})
  lines = [['model', 'family', 'cost', 'kernels', *columns]]
  for family, members in families(entries).items():
    for e in members:
      mine = params.get(e.name, {})
      lines.append([e.name, family, e.cost, ', '.join(e.kernels) or '-',
                    *(_against(mine.get(t), base.get(t)) for t in columns)])
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  return ''.join('  '.join(
      cell.rjust(w) if i > 3 else cell.ljust(w)
      for i, (cell, w) in enumerate(zip(line, widths, strict=True))
  ).rstrip() + '\n' for line in lines)


def _against(number, reference):
  """Parameters and their ratio to the reference's."""
  if number is None:
    return '-'
  ratio = f' {number / reference:.2f}x' if reference else ''
  return count(number) + ratio


if __name__ == '__main__':
  print(write_readme())
