"""Reads the published Long Range Arena results."""

import csv
import dataclasses
import io
import pathlib
import re
from collections.abc import Sequence

from lra import files
from lra.errors import UserError
from lra.report import statistics
from lra.report.row import Row
from lra.report.statistics import Sample

# Column of the file -> its title on the page.
SCORES = {'listops': 'ListOps', 'text': 'Text', 'retrieval': 'Retrieval',
          'image': 'Image', 'pathfinder': 'Pathfinder', 'pathx': 'Path-X'}
# The tasks of the arena's own mean, and of the mean of later papers.
AVERAGES = (tuple(SCORES)[:5], tuple(SCORES))
COLUMNS = ('model', *SCORES, 'average', 'protocol', 'source', 'arxiv',
           'evidence', 'here')
EVIDENCE = ('primary', 'secondary', 'recalled')
GUESS = 0.5  # accuracy in a mean of a task that was not learnt


@dataclasses.dataclass(frozen=True)
class Published:
  """One published row.

  Attributes:
    model: the name its paper gives it.
    scores: column of SCORES -> percent as printed in the source, 'FAIL', or ''
      if none was published.
    protocol: training and scoring rules; rows compare only within one.
    source: the publication with the numbers.
    arxiv: identifier of the model's paper.
    average: as printed in the source, over tasks of its choice, or ''.
    evidence: 'primary' (read in the source), 'secondary' (in another's
      table) or 'recalled' (not read again).
    here: the model of this repository that is the same mechanism, or ''.
  """
  model: str
  scores: dict[str, str]
  average: str
  protocol: str
  source: str
  arxiv: str
  evidence: str
  here: str = ''

  def score(self, task: str) -> float | None:
    """Returns a fraction; None without a score or if it was not learnt."""
    text = self.scores.get(task, '')
    return None if text in ('', 'FAIL') else float(text) / 100

  def mean(self, names: Sequence[str]) -> float | None:
    """Returns the mean of tasks, a fraction; None if one has no score."""
    if not all(self.scores[name] for name in names):
      return None
    return sum(GUESS if self.scores[name] == 'FAIL' else self.score(name)
               for name in names) / len(names)


def read(path: pathlib.Path) -> list[Published]:
  """Returns the rows of `path` in the order of the file.

  Raises:
    UserError: the file or one of its rows is malformed; names the line.
  """
  try:
    text = io.StringIO(files.read(path).decode(), newline='')
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
  for name in (*SCORES, 'average'):
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
  """A row beside the published score of its mechanism and protocol."""
  row: Row
  paper: Published
  accuracy: float

  @property
  def deviation(self) -> float:
    """Ours minus theirs, a fraction."""
    return self.row.mean - self.accuracy

  @property
  def bounds(self) -> tuple[float, float]:
    """The deviation's 95% interval; theirs is one run on other examples."""
    return statistics.difference(self.row.sample, Sample(
        (self.accuracy,), self.row.sample.examples))

  @property
  def verdict(self) -> str:
    low, high = self.bounds
    return 'lower' if high < 0 else 'higher' if low > 0 else 'not different'


def compare(members: list[Row], papers: list[Published], task: str,
            protocol: str) -> list[Compared]:
  """Returns the finished rows of a task that have published counterparts."""
  return [
      Compared(row, paper, paper.score(task))
      for row in members if row.finished for paper in papers
      if (paper.here, paper.protocol) == (row.model, protocol)
      and paper.score(task) is not None]
