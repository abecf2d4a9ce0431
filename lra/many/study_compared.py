"""Compares the arms of a study, from committed records."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.special

from lra.board import statistics
from lra.board.rows import Row
from lra.core.errors import UserError
from lra.many import progress, sweep
from lra.many import study as study_lib
from lra.many.study import Claim, Study

# How a claim compares with the runs.
SAME, OPPOSITE, UNSURE = 'same', 'opposite', 'not shown'
EQUAL = 'no difference found'
UNTESTED = ' (untested)'
_SIGN = {'higher': 1, 'lower': -1, 'equal': 0}


# (name of an arm, column) -> its recorded runs; None if there are none.
Cells = Mapping[tuple[str, str], Row | None]


@dataclasses.dataclass(frozen=True)
class Answer:
  """A claim in one column of the table.

  Attributes:
    claim: the claim.
    column: task, or value of the study's axis.
    difference, low, high: accuracy of the claim's arm minus that of the other,
      fractions, with its 95% interval.
    seeds: number of seeds of both.
    verdict: `SAME`, `EQUAL`, `UNSURE` or `OPPOSITE`; or `higher` or `lower`
      if the paper's result is not known.
  """
  claim: Claim
  column: str
  difference: float
  low: float
  high: float
  seeds: tuple[int, int]
  verdict: str


def cells(study: Study, file: pathlib.Path, runs: pathlib.Path) -> Cells:
  """Returns the recorded runs of each arm in each column, in the study's order.

  Args:
    study: the study, read from `file`.
    file: its path, which makes the entries of the sweep.
    runs: folder of all records, such as lra/results/runs.

  Raises:
    UserError: an arm has two configs in one column.
  """
  entries = sweep.read(file)
  records = progress.recorded(entries, runs)
  found = {}
  for entry in entries:
    values = json.loads(entry.repetition)[0]
    column = str(values[study.axis]) if study.axis else values['task']
    found.setdefault((entry.arm, column), []).append(entry)
  for (arm, column), seeds in found.items():
    if len({entry.config_flags for entry in seeds}) > 1:
      raise UserError(f'{file}: the arm {arm} has several configs for '
                      f'{column}: give each a name of its own.')
  kept = {key: [records[entry.repetition] for entry in seeds
                if entry.repetition in records]
          for key, seeds in found.items()}
  return {key: Row(runs) if runs else None for key, runs in kept.items()}


def answers(study: Study, found: Cells) -> list[Answer]:
  """Tests the claims in each column with runs, with Holm's correction.

  Seeds are compared by Welch's t-test. If an arm has one seed only, it is
  McNemar's test of the examples.
  """
  open_, p = [], []
  for claim in study.claims:
    for column in dict.fromkeys(column for _, column in found):
      if claim.at and column not in claim.at:
        continue
      a = found.get((claim.arm, column))
      b = found.get((claim.than, column))
      if not (a and a.finished):
        continue
      other = b.sample if b and b.finished else _baseline(a, claim.than)
      if other is None:
        continue
      open_.append((claim, column, _difference(a.sample, other),
                    (len(a.finished), len(other.accuracies))))
      p.append(_p_value(a.sample, other))
  apart = statistics.differ(p) if p else []
  return [Answer(claim, column, *difference, seeds,
                 verdict(claim.expected, difference[0], significant))
          for (claim, column, difference, seeds), significant in zip(
              open_, apart, strict=True)]


def verdict(expected: str, difference: float, significant: bool) -> str:
  """Returns how a measured difference compares with the expected one."""
  if not significant:
    return EQUAL if expected in ('equal', '') else UNSURE
  if not expected:
    return 'higher' if difference > 0 else 'lower'
  return SAME if np.sign(difference) == _SIGN[expected] else OPPOSITE


def _baseline(row, name):
  """Returns a baseline of the first run as a sample of one, or None."""
  known = row.runs[0].baselines.get(name.removeprefix(study_lib.BASELINE))
  return None if known is None or not name.startswith(
      study_lib.BASELINE) else statistics.Sample((known,), row.sample.examples)


def _difference(a, b):
  """Returns (difference of the means, low and high end of its interval)."""
  middle = float(np.mean(a.accuracies) - np.mean(b.accuracies))
  if min(len(a.accuracies), len(b.accuracies)) < 2:
    return middle, *statistics.difference(a, b)
  error, degrees = _welch(a, b)
  half = error * scipy.special.stdtrit(
      degrees, (1 + statistics.CONFIDENCE) / 2)
  return middle, middle - half, middle + half


def _p_value(a, b):
  if min(len(a.accuracies), len(b.accuracies)) < 2:
    return float(statistics.p_values([a, b], None)[0, 1])
  error, degrees = _welch(a, b)
  t = (np.mean(a.accuracies) - np.mean(b.accuracies)) / error
  return float(2 * scipy.special.stdtr(degrees, -abs(t)))


def _welch(a: statistics.Sample, b: statistics.Sample) -> tuple[float, float]:
  """Returns the standard error of a difference, and its degrees of freedom.

  Each variance has that of rounding to whole examples added, so that it is
  above 0.
  """
  parts = [(float(np.var(s.accuracies, ddof=1)) + s.examples**-2 / 12)
           / len(s.accuracies) for s in (a, b)]
  degrees = sum(parts)**2 / sum(
      part**2 / (len(s.accuracies) - 1)
      for part, s in zip(parts, (a, b), strict=True))
  return math.sqrt(sum(parts)), degrees


def measured_answers(study: Study, rows: Sequence[Mapping]) -> list[Answer]:
  """Compares measured rows by the column that a claim names; no test.

  Args:
    study: the study.
    rows: see `lra.many.study_page`; the first value of a row is its name.
  """
  named = {str(next(iter(row.values()))): row for row in rows}
  made = []
  for claim in study.claims:
    if claim.arm not in named or claim.than not in named:
      continue
    for column in claim.at:
      a, b = (named[name].get(column) for name in (claim.arm, claim.than))
      if a is not None and b is not None:
        made.append(Answer(
            claim, column, a - b, math.nan, math.nan, (1, 1),
            verdict(claim.expected, a - b, a != b) + UNTESTED))
  return made
