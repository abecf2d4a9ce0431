"""Reads the page's data besides records: published scores, speeds, budgets.

`published.csv` has the results of papers. `python -m tools tables speed` has
measured the speeds in `speed.json`. `python -m lra.cli.parameters` has
counted the parameters in `budgets.csv`. So a page needs no model.
"""

import csv
import dataclasses
import functools
import io
import math
import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from lra.board import catalogue
from lra.core import files, paths
from lra.core.errors import UserError

# Column of the published results -> its title on the page.
SCORES = {'listops': 'ListOps', 'text': 'Text', 'retrieval': 'Retrieval',
          'image': 'Image', 'pathfinder': 'Pathfinder', 'pathx': 'Path-X'}
# The tasks of the arena's own mean, and of the mean of later papers.
AVERAGES = (tuple(SCORES)[:5], tuple(SCORES))
COLUMNS = ('model', *SCORES, 'average', 'protocol', 'source', 'arxiv',
           'evidence', 'here')
GUESS = 0.5  # accuracy that a task counts in a mean if it was not learnt
BUDGETS = paths.PACKAGED / 'budgets.csv'
PUBLISHED_PROBES = paths.PACKAGED / 'published_probes.csv'
# Column -> its pattern, and what a text is that does not match.
_PATTERNS = dict.fromkeys((*SCORES, 'average'), (
    r'\d\d?(\.\d+)?|100(\.0+)?|FAIL|', 'a percentage, FAIL or empty')) | {
    'arxiv': (r'\d{4}\.\d{4,5}', 'like 2011.04006'),
    'evidence': ('primary|secondary|recalled',
                 'primary or secondary or recalled'),
    'here': ('[a-z0-9_]*', 'the name of a model')}


@dataclasses.dataclass(frozen=True)
class Published:
  """One published row, as printed in its `source`.

  `scores` has a percentage, 'FAIL' or '' for each column of SCORES; the
  `average` is over tasks of the source's choice. `arxiv` is the model's paper.
  The evidence is 'primary' (read in the source), 'secondary' (in another's
  table) or 'recalled' (not read again). `here` is the same mechanism in this
  repository.
  """
  model: str
  scores: dict[str, str]
  average: str
  protocol: str
  source: str
  arxiv: str
  evidence: str
  here: str = ''

  @property
  def family(self) -> str:
    return catalogue.family(self.here)

  def score(self, task: str) -> float | None:
    """Returns a fraction; None if there is no score or nothing was learnt."""
    text = self.scores.get(task, '')
    return None if text in ('', 'FAIL') else float(text) / 100

  def mean(self, names: Sequence[str]) -> float | None:
    """Returns the mean of tasks, a fraction; None if one has no score."""
    if not all(self.scores[name] for name in names):
      return None
    return sum(GUESS if self.scores[name] == 'FAIL' else self.score(name)
               for name in names) / len(names)


def published(path: pathlib.Path) -> list[Published]:
  """Returns the published rows of `path`; a UserError names the line of a
  fault.
  """
  try:
    text = io.StringIO(files.read_text(path), newline='')
    reader = csv.reader(text, strict=True)
    if tuple(next(reader, ())) != COLUMNS:
      raise ValueError(f'the header must be {",".join(COLUMNS)}')
    return [_parse(fields) for fields in reader]
  except OSError as error:
    raise UserError(
        f'Cannot read {path} ({error.strerror}): restore it from the '
        'repository.') from error
  except UnicodeDecodeError as error:
    raise UserError(f'{path} is not UTF-8: save it as UTF-8.') from error
  except (ValueError, csv.Error) as error:
    line = max(reader.line_num, 1)
    raise UserError(
        f'{path}, line {line}: {error}; correct that row.') from error


def _parse(fields):
  if len(fields) != len(COLUMNS):
    raise ValueError(f'{len(fields)} fields instead of {len(COLUMNS)}')
  row = dict(zip(COLUMNS, fields, strict=True))
  for name in ('model', 'protocol', 'source'):
    if not row[name].strip():
      raise ValueError(f'{name} is empty')
  for name, (pattern, what) in _PATTERNS.items():
    if not re.fullmatch(pattern, row[name]):
      raise ValueError(f'{name} {row[name]!r} is not {what}')
  return Published(scores={name: row.pop(name) for name in SCORES}, **row)


class Speeds(NamedTuple):
  """Training steps of one shape, timed side by side: on `what` sequences and
  device.

  `faster` has the steps of each model in the time of one step of the
  Transformer, `memory` the bytes of a step besides its arguments.
  """
  what: str
  faster: dict[str, float]
  memory: dict[str, int]


def speeds(path: pathlib.Path) -> Speeds:
  """Returns the speeds at the file's last shape, whose sequences are longest.
  """
  measured = files.read_json(path)
  try:
    batch, length = measured['shapes'][-1]
    models = measured['models']
    seconds = {name: float(m['seconds'][-1]) for name, m in models.items()}
    memory = {name: int(m['bytes'][-1]) for name, m in models.items()}
    what = f'{batch} x {length:,} tokens on {measured["device"]}'
    faster = {name: seconds['transformer'] / s for name, s in seconds.items()}
    if not all(0 < x < math.inf for x in (*faster.values(), *memory.values())):
      raise ValueError('times and bytes must be above 0')
  except (TypeError, ValueError, KeyError, IndexError, AttributeError,
          ArithmeticError) as e:
    raise UserError(
        f'{path} holds no speeds of models: restore it, or write it by '
        '`python -m tools tables speed`.') from e
  return Speeds(what, faster, memory)


def budgets(path: pathlib.Path = BUDGETS) -> dict[tuple[str, str], int]:
  """Returns {(protocol, task): parameters of the Transformer}, {} at worst."""
  return {(row['protocol'], row['task']): row['transformer']
          for row in counts(path, ('protocol', 'task'), ('transformer',))}


@functools.cache
def published_probes() -> list:
  """Returns the published scores on longer sequences; [] without the file.

  The columns of a line: the names `task` and `test` here, such as '40-256';
  `model`, `source` and `arxiv` of the paper; the scaled accuracy (see
  `tasks.Task.scaled`), for Grazzi et al. the median over seeds, and its median
  absolute deviation `spread`, perhaps NaN; the model that is the same mechanism
  `here`, and the `Row.own_changes` of its row, `changes`.
  """
  import pandas  # imported late, since only pages need it
  if not PUBLISHED_PROBES.exists():
    return []
  try:
    return list(pandas.read_csv(
        io.BytesIO(files.read(PUBLISHED_PROBES)), dtype={'test': str}).fillna(
            {'changes': ''}).astype({'scaled': float, 'spread': float}
                                    ).itertuples())
  except (OSError, ValueError, KeyError) as error:
    raise UserError(f'{PUBLISHED_PROBES} is not valid ({error}): restore it '
                    'from the repository.') from error


def counts(path: pathlib.Path, names: Sequence[str], numbers: Sequence[str]
           ) -> list[dict]:
  """Returns columns of a CSV file, names and counts; [] if it is not valid."""
  try:
    rows = csv.DictReader(io.StringIO(path.read_text(encoding='utf-8')))
    return [{**{name: row[name] for name in names},
             **{name: int(row[name]) for name in numbers}} for row in rows]
  except (OSError, ValueError, KeyError, TypeError):
    return []
