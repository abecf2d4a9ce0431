"""The laptop arena: small tasks under one protocol.

`suite.toml` names its tasks. A mechanism's row of a task has the learning rate
that a search chose. The average is over the tasks that foretell their column of
Long Range Arena; a mechanism without one of these tasks has none.
"""

import functools
import pathlib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lra.board import catalogue, statistics
from lra.board.frame import Board
from lra.board.rows import Row, TableKey, mean
from lra.board.statistics import Rank, Sample, Spread
from lra.board.summary import Cell
from lra.board.tables import lines as lines_of
from lra.core.formats import percent

AVERAGE = 'average'
SEARCHED = 'train.learning_rate'
BETTER, WORSE, UNSURE = 'better', 'worse', 'not told'
_ANSWERS = {BETTER: 'yes', WORSE: 'no, it is worse', UNSURE: 'not told'}


class Task(NamedTuple):
  """A task of the arena; `column` is that of Long Range Arena, '' for none.

  It is not `validated` if held-out mechanisms have another order there.
  """
  name: str
  ability: str
  why: str
  example: str
  best: str
  column: str = ''
  validated: bool = True


class Suite(NamedTuple):
  protocol: str
  reference: str
  designed_on: Sequence[str]
  tasks: Sequence[Task]
  grid: Sequence[float]
  known: Sequence[str]

  @property
  def compared(self) -> list[Task]:
    return [task for task in self.tasks if task.column]

  @property
  def averaged(self) -> list[Task]:
    return [task for task in self.compared if task.validated]

  @property
  def abilities(self) -> list[tuple[str, str]]:
    """Returns (ability, name) of each task, and of an average of several."""
    return [*((task.ability, task.name) for task in self.tasks),
            *[(AVERAGE, AVERAGE)] * (len(self.averaged) > 1)]


@functools.cache
def suite() -> Suite:
  path = pathlib.Path(__file__).with_suffix('.toml')
  found = tomllib.loads(path.read_text('utf-8'))
  return Suite(**found | {'tasks': [Task(**task) for task in found['tasks']]})


class Line(NamedTuple):
  """A mechanism: its row of each task, as `tables.lines` has it.

  `average` has the mean over the averaged tasks of each seed, None if one is
  missing; the `rank` is among the averages. `against` has `BETTER`, `WORSE` or
  `UNSURE` of each task and the average, beside the reference.
  """
  model: str
  cells: Mapping[str, object]
  average: Sample | None
  rank: Rank | None
  against: Mapping[str, str]

  family = property(lambda self: catalogue.family(self.model))

  @property
  def core_minutes(self) -> float | None:
    """Time of one run, as a mean over its tasks; None if a record has none."""
    known = [core_minutes(cell.row) for cell in self.cells.values()]
    return float(np.mean(known)) if known and None not in known else None

  def sample(self, task: str) -> Sample | None:
    if task == AVERAGE:
      return self.average
    return self.cells[task].row.sample if task in self.cells else None

  def score(self, task: str) -> float | None:
    sample = self.sample(task)
    return sample and float(np.mean(sample.accuracies))


def above_baseline(line) -> bool:
  """Returns whether a row of a task is significantly above the baseline."""
  return line.differs_from_baseline is not False and (line.above or 0) > 0


def half(sample: Sample) -> str:
  """Returns a mean accuracy in percent, with half of its interval over seeds.

  An interval that ends at 0 or 1 is given by its ends. One seed has none.
  """
  if len(sample.accuracies) == 1:
    return percent(sample.accuracies[0], 1)
  accuracy, (low, high, _) = mean(sample.accuracies), statistics.interval(
      sample)
  ends = percent(low, 1), percent(high, 1)
  if (low <= 0 or high >= 1) and ends[0] != ends[1]:
    return f'{percent(accuracy, 1)} ({ends[0]} to {ends[1]})'
  return Cell(accuracy, 1, (high - low) / 2).text


def core_minutes(row: Row, share: float = 1 / 3) -> float | None:
  """Returns the mean time of a run of one core, with a `share` of the search.

  The share is that of three seeds, however many a row has. None for a device
  that is no CPU.
  """
  found = re.fullmatch(r'cpu \((\d+) cores?\)', row.runs[0].device)
  if not found:
    return None
  search = row.search.seconds if row.search else None
  times = [run.seconds / run.runs_at_once for run in row.runs]
  return int(found[1]) * (np.mean(times) + (search or 0) * share) / 60


def rows(board: Board) -> list:
  """Returns the lines of a task in the arena, the highest accuracy first.

  Rows that another search chose are left out.
  """
  key = TableKey(suite().protocol, searched=True)
  table = board.tables().get(key)
  return [] if table is None else [
      line for line in lines_of(table) if line.accuracy is not None
      and line.row.search.grid == {SEARCHED: suite().grid}]


def lines(boards: Iterable[Board]) -> list[Line]:
  """Returns the mechanisms, the highest average first, then those without."""
  found = {board.task.name: rows(board) for board in boards}
  cells = {}
  for task in suite().tasks:
    for line in found.get(task.name, ()):
      cells.setdefault(line.model, {}).setdefault(task.name, line)
  averages = {model: made for model, own in cells.items() if (
      made := _mean({name: cell.row.sample for name, cell in own.items()}))}
  order = sorted(averages, key=lambda model: -np.mean(
      averages[model].accuracies))
  ranks, spread = statistics.rank([averages[model] for model in order])
  rank_of = dict(zip(order, ranks, strict=True))
  told = {AVERAGE: against([averages[model] for model in order],
                           order, spread)} | {
      name: against([line.row.sample for line in some],
                    [line.model for line in some])
      for name, some in found.items()}
  rest = sorted(cells.keys() - averages.keys(), key=lambda model: (
      -len(cells[model]), -np.mean([
          cell.accuracy for cell in cells[model].values()]), model))
  return [Line(model, cells[model], averages.get(model), rank_of.get(model), {
      name: of[model] for name, of in told.items() if model in of})
          for model in [*order, *rest]]


def _mean(of):
  """Returns the mean over the averaged tasks of samples by task, or None."""
  samples = [of[task.name] for task in suite().averaged if task.name in of]
  if not samples or len(samples) < len(suite().averaged):
    return None
  seeds = min(len(sample.accuracies) for sample in samples)
  return Sample(
      tuple(np.mean([s.accuracies[:seeds] for s in samples], 0).tolist()),
      sum(sample.examples for sample in samples))


def against(samples: Sequence[Sample], models: Sequence[str],
            spread: Spread | None = None) -> dict[str, str]:
  """Returns how each model compares with the reference, {} without it.

  Holm's correction is over these comparisons only, as in Dunnett's test.
  """
  if suite().reference not in models:
    return {}
  at = models.index(suite().reference)
  p = statistics.p_values(samples, spread or statistics.spread(samples))[at]
  others = [i for i in range(len(samples)) if i != at]
  own = np.mean(samples[at].accuracies)
  return {models[i]: UNSURE if not apart else (
      BETTER if np.mean(samples[i].accuracies) > own else WORSE)
          for i, apart in zip(others, statistics.differ(p[others]),
                              strict=True)}


class Progress(NamedTuple):
  """Cells, each a mechanism on a task: those with a row, and all.

  `complete` of the `mechanisms` have a row of every task. The rows took `spent`
  core-hours with their searches; the rest needs about `left`, at the mean time
  of a cell.
  """
  made: int
  cells: int
  complete: int
  mechanisms: int
  spent: float
  left: float


def progress(found: Sequence[Line]) -> Progress:
  known = {entry.name for entry in catalogue.read()}
  own = [line for line in found if line.model in known]
  rows_ = [cell.row for line in own for cell in line.cells.values()]
  hours = [minutes * len(row.runs) / 60 for row in rows_
           if (minutes := core_minutes(row, 1 / len(row.runs))) is not None]
  of_all = len(known) * len(suite().tasks)
  return Progress(
      len(rows_), of_all, sum(
          len(line.cells) == len(suite().tasks) for line in own), len(known),
      sum(hours), (of_all - len(rows_)) * float(np.mean(hours or [0])))


def stands(model: str, own: Mapping[str, Sample], boards: Iterable[Board]
           ) -> list[tuple[str, str, str, str]]:
  """Returns where a mechanism stands among the recorded ones.

  Args:
    model: its name; recorded rows of this name are left out.
    own: its scores by task.
    boards: the records.

  Returns:
    For each task of `own`, and the average if `own` has what it needs: the
    ability, the accuracy, the rank, and how it compares with the reference.
  """
  known = [line for line in lines(boards) if line.model != model]
  made = []
  for ability, name in suite().abilities:
    mine = _mean(own) if name == AVERAGE else own.get(name)
    if mine is None:
      continue
    samples = {model: mine} | {
        line.model: sample for line in known if (sample := line.sample(name))}
    order = sorted(samples, key=lambda one: -np.mean(samples[one].accuracies))
    some = [samples[one] for one in order]
    rank = statistics.rank(some)[0][order.index(model)]
    told = against(some, order).get(model)
    made.append((
        ability, half(mine),
        f'rank {rank.first} to {rank.last} of {len(some)}',
        '' if told is None else
        f'better than the {suite().reference}: {_ANSWERS[told]}'))
  return made


class Power(NamedTuple):
  """How sharp a task is.

  `deviation` is the root mean square deviation of seeds, a fraction, and
  `weight` that of `statistics.Spread`, 0 without one. `rows` mechanisms are
  compared, `apart` is the share of pairs that differ, and `width` the median
  number of places of a rank.
  """
  ability: str
  examples: int
  rows: int
  deviation: float | None
  weight: float
  apart: float
  width: float


def power(found: Sequence[Line]) -> list[Power]:
  """Returns how sharp each task with two mechanisms is, and the average."""
  made = []
  for ability, name in suite().abilities:
    samples = sorted(filter(None, (line.sample(name) for line in found)),
                     key=lambda sample: -np.mean(sample.accuracies))
    if len(samples) < 2:
      continue
    ranks, spread = statistics.rank(samples)
    pairs = len(ranks) * (len(ranks) - 1)
    made.append(Power(
        ability, samples[0].examples, len(samples),
        statistics.pooled(samples), spread.weight if spread else 0.0,
        1 - (sum(len(one.like) for one in ranks) - len(ranks)) / pairs,
        float(np.median([one.last - one.first + 1 for one in ranks]))))
  return made
