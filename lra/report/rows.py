"""A row of the leaderboard: all seeds of one configuration of a model."""

import dataclasses
import functools
import math

import numpy as np

from lra import bits, tasks
from lra.formats import digits
from lra.records.result import Result
from lra.report import statistics
from lra.report.comparison import Rank
from lra.report.statistics import Interval, Sample


@dataclasses.dataclass
class Row:
  """The seeds of one configuration.

  Attributes:
    runs: their results, by seed.
    records: path of each one's file from the folder of the results.
    family: kind of mechanism of the model, see `lra.report.catalogue`.
    variant: config fields that differ from the model's other rows, or ''.
    baseline: score of the highest baseline of the row's data, or None.
    baseline_name: name of that baseline, or ''.
    off_baseline: whether its accuracy differs significantly from that baseline,
      at 5% for all rows of its table together.
    foreign: fingerprint of the task's baselines if the row's differs, or ''.
    apart: fingerprint of the rows with ranks if the row's differs, or ''.
    rank: its rank among the rows of its table; None without a finished run or
      on other data than these.
    ratio: parameters over the reference Transformer's, or None.
    heavy: whether that ratio is above 1.1.
  """
  runs: list[Result]
  records: list[str] = dataclasses.field(default_factory=list)
  family: str = ''
  variant: str = ''
  baseline: Sample | None = None
  baseline_name: str = ''
  off_baseline: bool = False
  foreign: str = ''
  apart: str = ''
  rank: Rank | None = None
  ratio: float | None = None
  heavy: bool = False

  # Equal in all runs of the row.
  task = property(lambda self: self.runs[0].task)
  model = property(lambda self: self.runs[0].model)
  protocol = property(lambda self: self.runs[0].protocol)
  data = property(lambda self: self.runs[0].data_fingerprint)
  config = property(lambda self: self.runs[0].config)
  table = property(lambda self: Table(self.protocol, bool(self.changes)))

  @property
  def name(self) -> str:
    """The model, with its variant in brackets."""
    return f'{self.model} ({self.variant})' if self.variant else self.model

  @property
  def elsewhere(self) -> bool:
    """Whether it is on other data than the baselines or the rows with ranks."""
    return bool(self.foreign or self.apart)

  @property
  def changes(self) -> dict:
    """{field: the protocol's value} of the settings that differ."""
    return {name: value for run in self.runs
            for name, value in (run.changes or {}).items()}

  @property
  def finished(self) -> list[Result]:
    return [run for run in self.runs if run.status == 'ok']

  @property
  def accuracies(self) -> list[float]:
    return [run.test.accuracy for run in self.finished]

  @property
  def mean(self) -> float | None:
    return mean(self.accuracies)

  @functools.cached_property
  def sample(self) -> Sample | None:
    """Its test scores for statistics, None without a finished run.

    A probe's answers within a sequence count as one example: their mean varies
    at most like a single answer.
    """
    if not self.finished:
      return None
    tests = [run.test for run in self.finished]
    kept = all(t.correct and t.examples == tests[0].examples for t in tests)
    examples = max(tests[0].examples // tasks.get(self.task).answers, 1)
    return Sample(tuple(self.accuracies), examples, np.array([
        bits.unpack(t.correct, t.examples) for t in tests]) if kept else None)

  @functools.cached_property
  def interval(self) -> Interval | None:
    """The 95% interval of its accuracy."""
    return self.sample and statistics.interval(self.sample)

  @property
  def above_baseline(self) -> float | None:
    """Its accuracy minus that of the highest baseline, a fraction."""
    return None if self.mean is None or self.baseline is None else (
        self.mean - self.baseline.accuracies[0])

  @property
  def digits(self) -> int:
    """Number of significant digits after the point of its percentages."""
    return 2 if self.interval is None else digits(
        self.interval.low, self.interval.high)

  @property
  def best(self) -> float | None:
    return max(self.accuracies, default=None)

  @property
  def deviation(self) -> float | None:
    """Standard deviation of its seeds' accuracies; see `statistics`."""
    return self.sample and statistics.deviation(self.sample)

  @property
  def params(self) -> int | None:
    return self.largest('num_params')

  @property
  def devices(self) -> list[str]:
    """Devices of each seed."""
    return [device(run) for run in self.runs]

  def values(self, field: str) -> list:
    """Returns the field of every run that has it."""
    found = (getattr(run, field) for run in self.runs)
    return [value for value in found if value is not None]

  def largest(self, field: str) -> int | None:
    return max(self.values(field), default=None)

  def setting(self, section: str, name: str) -> str:
    """Returns a value of its config, '' if it is missing."""
    value = (self.config.get(section) or {}).get(name)
    return '' if value is None else str(value)

  def average(self, split: str, field: str) -> float | None:
    """Returns the mean of a score over finished runs with this split."""
    scores = [getattr(run, split) for run in self.finished]
    return mean([getattr(s, field) for s in scores if s is not None])

  def per_device(self, field: str) -> list[float | None]:
    """Returns the mean of `field` if all used one device, else each seed's."""
    if len(set(self.devices)) == 1:
      return [mean(self.values(field))]
    return [getattr(run, field) for run in self.runs]


@dataclasses.dataclass(frozen=True, order=True)
class Table:
  """The key of a table, equal for all of its rows.

  Attributes:
    protocol: its name.
    changed: whether their settings are not those of the protocol.
  """
  protocol: str
  changed: bool = False

  @property
  def title(self) -> str:
    return self.protocol + (', settings changed' if self.changed else '')


def device(run: Result) -> str:
  """Returns the devices of a run, and the number of runs that shared them."""
  several = f'{run.num_devices} x ' if run.num_devices > 1 else ''
  shared = f', {run.runs_at_once} runs at once' if run.runs_at_once > 1 else ''
  return several + run.device + shared


def mean(values) -> float | None:
  return math.fsum(values) / len(values) if values else None
