"""Does the order of the laptop arena foretell that of Long Range Arena?"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from lra.board import suite
from lra.board.inputs import SCORES, Published
from lra.board.suite import AVERAGE

# A task foretells its column if the rank correlation over the mechanisms that
# it was not designed on is at least this.
VALID = 0.6
VALIDATED, NOT_VALIDATED = 'validated', 'not validated'
UNKNOWN = 'not known yet'
NO_TEST = 'no test'  # of an average whose tasks were chosen by the outcome
FAR = 0.1  # two papers on one mechanism seldom differ by more
_FEWEST = 5  # mechanisms of a correlation
_FEWEST_BETWEEN = 4  # of one between two published tables
_DRAWS = 2000
ALL = 'mean of all four'


class Validity(NamedTuple):
  """How the order of a task, or the average, agrees with published scores.

  `points` has (mechanism, score here, published score), both fractions. `held`
  is the rank correlation over the mechanisms that the arena was not designed
  on, with its bootstrap interval, `own` that over the others; None for too few.
  `known` such mechanisms have a published score.
  """
  title: str
  ability: str
  tasks: Sequence[str]
  points: Sequence[tuple[str, float, float]]
  held: tuple[float, float, float] | None
  own: float | None
  known: int

  @property
  def within(self) -> float | None:
    """Returns the rank correlation within two groups of held-out mechanisms.

    They are those on either side of the largest gap of published scores. None
    for too few mechanisms.
    """
    if self.held is None:
      return None
    _, here, there = zip(*sorted(_held_out(self.points), key=lambda p: p[2]),
                         strict=True)
    split = int(np.diff(there).argmax()) + 1
    ranks = [np.concatenate([
        scipy.stats.rankdata(part) - (len(part) + 1) / 2
        for part in (x[:split], x[split:])]) for x in (here, there)]
    size = math.sqrt((ranks[0]**2).sum() * (ranks[1]**2).sum())
    return float((ranks[0] * ranks[1]).sum() / size) if size else None

  @property
  def furthest(self) -> tuple[str, int, int] | None:
    """Returns a held-out mechanism, its place here, and its published place.

    No other one has places that differ more. None for too few mechanisms.
    """
    if self.held is None:
      return None
    names, *scores = zip(*_held_out(self.points), strict=True)
    here, there = (scipy.stats.rankdata(-np.array(x), 'min').astype(int)
                   for x in scores)
    at = int(np.abs(here - there).argmax())
    return names[at], int(here[at]), int(there[at])

  @property
  def far(self) -> tuple[int, int]:
    """Returns how many far pairs have their published order here, and all.

    Published scores of such a pair of held-out mechanisms differ by `FAR`.
    """
    order = [(a - b) * (c - d) > 0 for (_, a, c), (_, b, d) in
             itertools.combinations(_held_out(self.points), 2)
             if round(abs(c - d), 4) >= FAR]  # papers print hundredths of %
    return sum(order), len(order)

  @property
  def verdict(self) -> str:
    if self.held is None:
      return UNKNOWN
    if self.ability == AVERAGE and ALL in _averages():
      return NO_TEST
    return VALIDATED if self.held[0] >= VALID else NOT_VALIDATED


def validity(found: Sequence[suite.Line], papers: Sequence[Published]
             ) -> list[Validity]:
  """Compares tasks with a column, and their averages, with published scores.

  The first average is that of the arena, the second that of all these tasks.
  Of several published scores of a mechanism the highest counts: a lower one has
  a weaker recipe.
  """
  columns = [*((task.ability, [task.name], task.column)
               for task in suite.suite().compared),
             *((ability, _names(tasks), AVERAGE)
               for ability, tasks in _averages().items())]
  made = []
  for ability, names, column in columns:
    published = {}
    for paper in papers:
      score = (paper.mean(list(SCORES)) if column == AVERAGE else
               paper.score(column))
      if paper.here and score is not None:
        published[paper.here] = max(score, published.get(paper.here, 0))
    points = [(line.model, float(np.mean(scores)), published[line.model])
              for line in found if line.model in published
              and None not in (scores := [line.score(one) for one in names])]
    held = _held_out(points)
    own = [point for point in points if point[0] in suite.suite().designed_on]
    made.append(Validity(
        SCORES.get(column, column), ability, names, points, _correlation(held),
        _spearman(own), len(published.keys() - suite.suite().designed_on)))
  return made


def _names(tasks):
  return [task.name for task in tasks]


def _averages():
  kept, every = suite.suite().averaged, suite.suite().compared
  return ({AVERAGE: kept} if kept else {}) | (
      {ALL: every} if kept != every else {})


class Between(NamedTuple):
  """How two protocols of published scores order the same mechanisms.

  `correlations` has {title of a column: Spearman's rank correlation}.
  """
  protocols: tuple[str, str]
  models: Sequence[str]
  correlations: dict[str, float]


def between(papers: Sequence[Published]) -> Between | None:
  """Compares the two protocols that have most mechanisms in common.

  This shows how far a published order is repeated. None without four of them.
  """
  columns = [task.column for task in suite.suite().compared]
  tables = {}
  for paper in papers:
    if paper.here and all(paper.score(column) for column in columns):
      tables.setdefault(paper.protocol, {})[paper.here] = paper
  both = max(itertools.combinations(sorted(tables), 2), default=(), key=(
      lambda pair: len(tables[pair[0]].keys() & tables[pair[1]])))
  names = sorted(set.intersection(*(set(tables[one]) for one in both))
                 if both else ())
  if len(names) < _FEWEST_BETWEEN:
    return None
  return Between(both, names, {SCORES[column]: float(scipy.stats.spearmanr(*(
      [tables[one][name].score(column) for name in names]
      for one in both)).statistic) for column in columns})


def _held_out(points):
  """Returns them by name, so that the drawn samples do not depend on scores."""
  return sorted(point for point in points
                if point[0] not in suite.suite().designed_on)


def _spearman(points):
  if len(points) < _FEWEST:
    return None
  _, here, there = zip(*points, strict=True)
  return float(scipy.stats.spearmanr(here, there).statistic)


def _correlation(points):
  """Returns Spearman's correlation and its 95% interval, by resampling."""
  middle = _spearman(points)
  if middle is None:
    return None
  rng = np.random.default_rng(0)
  _, here, there = (np.array(x) for x in zip(*points, strict=True))
  some = rng.integers(0, len(here), (_DRAWS, len(here)))
  ranks = [scipy.stats.rankdata(x[some], axis=1) for x in (here, there)]
  ranks = [r - r.mean(1, keepdims=True) for r in ranks]
  size = np.sqrt((ranks[0]**2).sum(1) * (ranks[1]**2).sum(1))
  drawn = (ranks[0] * ranks[1]).sum(1)[size > 0] / size[size > 0]
  return (middle, *np.quantile(drawn, [0.025, 0.975]).tolist())
