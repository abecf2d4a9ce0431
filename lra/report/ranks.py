"""Which rows of a table can be told apart, and so which ranks each may have."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from lra.report import pairs
from lra.report.pairs import Spread
from lra.report.statistics import CONFIDENCE, Sample


@dataclasses.dataclass(frozen=True)
class Rank:
  """What is known of a row's rank in its table.

  Attributes:
    place: its place by mean accuracy, from 1.
    first, last: between which places it would be, were the rows ordered by
      what their mechanisms reach: below the rows that are told to be better,
      above those that are told to be worse.
    like: places of the rows that cannot be told apart from it, its own too.
  """
  place: int
  first: int
  last: int
  like: tuple[int, ...]


def of_table(samples: Sequence[Sample]) -> tuple[list[Rank], Spread | None]:
  """Ranks of samples in order, the highest mean first, and their spread."""
  common = pairs.spread(samples)
  like = ~apart(samples, common)
  places = np.arange(1, len(samples) + 1)
  found = [Rank(place=i + 1,
                first=1 + int((~row[:i]).sum()),
                last=len(samples) - int((~row[i:]).sum()),
                like=tuple(places[row].tolist()))
           for i, row in enumerate(like)]
  return found, common


def off_rules(scores: Sequence[tuple[Sample, Sample]], common: Spread | None
              ) -> list[bool]:
  """Which samples differ from the rule beside them, at 5% for all together."""
  return differ([pairs.p_value_of_rule(*both, common) for both in scores])


def apart(samples: Sequence[Sample], common: Spread | None) -> np.ndarray:
  """Which differ, at 5% for all pairs together: bool [N, N]."""
  upper = np.triu_indices(len(samples), 1)
  p = pairs.p_values(samples, common)
  found = np.zeros(p.shape, bool)
  found[upper] = differ(p[upper])
  return found | found.T


def differ(p: Sequence[float]) -> list[bool]:
  """Which of several tests find a difference: at 5% for all together (Holm)."""
  order = np.argsort(p, kind='stable')
  bounds = (1 - CONFIDENCE) / (len(order) - np.arange(len(order)))
  found = np.zeros(len(order), bool)
  found[order] = np.logical_and.accumulate(np.asarray(p)[order] <= bounds)
  return found.tolist()
