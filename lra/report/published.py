"""Reads the published Long Range Arena results."""

import csv
import dataclasses
import pathlib
import re

from lra.errors import UserError
from lra.report.row import Row

# Column of the file -> its title on the page.
SCORES = {'listops': 'ListOps', 'text': 'Text', 'retrieval': 'Retrieval',
          'image': 'Image', 'pathfinder': 'Pathfinder', 'pathx': 'Path-X',
          'average': 'Average'}
COLUMNS = ('model', *SCORES, 'protocol', 'source', 'arxiv', 'evidence',
           'here')
EVIDENCE = ('primary', 'secondary')


@dataclasses.dataclass(frozen=True)
class Published:
  """One published row.

  Attributes:
    model: the name its paper gives it.
    scores: column of SCORES -> percent as printed in the source, 'FAIL', or ''
      where none was published.
    protocol: training and scoring rules; rows compare only within one.
    source: where the numbers are printed.
    arxiv: identifier of the model's paper.
    evidence: 'primary' (read in the source) or 'secondary' (in another's
      table).
    here: the model of this repository that is the same mechanism, or ''.
  """
  model: str
  scores: dict[str, str]
  protocol: str
  source: str
  arxiv: str
  evidence: str
  here: str = ''

  def score(self, task: str) -> float | None:
    """A fraction; None for a task without a score or that was not learnt."""
    text = self.scores.get(task, '')
    return None if text in ('', 'FAIL') else float(text) / 100


def read(path: pathlib.Path) -> list[Published]:
  """Returns the rows of `path` in the order of the file.

  Raises:
    UserError: the file or one of its rows is malformed; names the line.
  """
  try:
    with open(path, encoding='utf-8', newline='') as f:
      reader = csv.reader(f, strict=True)
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
  for name in SCORES:
    _check_score(name, row[name])
  if not re.fullmatch(r'\d{4}\.\d{4,5}', row['arxiv']):
    raise ValueError(f'arxiv {row["arxiv"]!r} is not like 2011.04006')
  if row['evidence'] not in EVIDENCE:
    raise ValueError(
        f'evidence {row["evidence"]!r} is not {" or ".join(EVIDENCE)}')
  if row['here'] and not re.fullmatch('[a-z0-9_]+', row['here']):
    raise ValueError(f"here {row['here']!r} is not the name of a model")
  scores = {name: row.pop(name) for name in SCORES}
  return Published(scores=scores, **row)


def _check_score(name, text):
  if text in ('', 'FAIL'):
    return
  if not re.fullmatch(r'\d{1,3}(\.\d+)?', text) or float(text) > 100:
    raise ValueError(f'{name} {text!r} is not a percentage, FAIL or empty')


@dataclasses.dataclass(frozen=True)
class Compared:
  """A row beside what was published of the same mechanism and protocol."""
  row: Row
  paper: Published
  accuracy: float

  @property
  def deviation(self) -> float:
    """Ours minus theirs, a fraction."""
    return self.row.mean - self.accuracy

  @property
  def inside(self) -> bool:
    """Whether the published value is in our 95% interval."""
    return self.row.interval.low <= self.accuracy <= self.row.interval.high


def compare(members: list[Row], papers: list[Published], task: str,
            protocol: str) -> list[Compared]:
  """Finished rows of a task and a protocol that have published counterparts."""
  return [
      Compared(row, paper, paper.score(task))
      for row in members if row.finished for paper in papers
      if (paper.here, paper.protocol) == (row.model, protocol)
      and paper.score(task) is not None]
