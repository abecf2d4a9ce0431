"""Rows of the leaderboard: the seeds of one configuration of a model.

Two configurations of a model are two rows, named by the fields that differ.
"""

import collections
import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lra.board import catalogue, states, statistics, store
from lra.board.statistics import Interval, Rank, Sample
from lra.core import bits, tasks
from lra.core.formats import digits, plain
from lra.schema import fields, identity
from lra.schema.result import Result

# Family of a model that has no file in lra/models.
OTHER = 'other'
# Largest number of fields in a row's name, and of letters in a value.
_NAMED = 12
_LETTERS = 60
_SIZES = ('num_layers', 'width', 'mlp_width')


@dataclasses.dataclass(frozen=True, order=True)
class TableKey:
  """The key of a table, equal for all of its rows.

  Attributes:
    protocol: name of the protocol.
    changed: whether settings of the rows differ from the protocol's, except
      for settings that were searched.
    searched: whether settings were chosen by a search. A search gives a model
      more chances than the protocol's own settings.
  """
  protocol: str
  changed: bool = False
  searched: bool = False

  @property
  def title(self) -> str:
    return self.protocol + self.departures

  @property
  def departures(self) -> str:
    """The part of the title after the protocol."""
    return (', settings changed' * self.changed
            + ', settings searched' * self.searched)

  @property
  def departs(self) -> bool:
    """Whether its rows are not runs of the protocol as it is."""
    return self.changed or self.searched


@dataclasses.dataclass
class Row:
  """The seeds of one configuration.

  Attributes:
    runs: their results, by seed.
    records: path of each one's file from the folder of the results.
    family: kind of mechanism of the model, see `lra.board.catalogue`.
    variant: config fields that differ from the model's other rows, or ''.
    baseline: score of the highest baseline of the row's data, or None.
    baseline_name: name of that baseline, or ''.
    off_baseline: whether its accuracy differs significantly from that baseline,
      at 5% for all rows of its table together.
    foreign: fingerprint of the baselines' data if the row's differs, or ''.
    apart: fingerprint of the ranked rows' data if the row's differs, or ''.
    rank: its rank among the rows of its table; None without a finished run, or
      on other data than the ranked rows.
    ratio: parameters over the reference Transformer's, or None.
    heavy: whether that ratio is above 1.1, the limit of the arena.
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
  search = property(lambda self: self.runs[0].search)
  table = property(lambda self: TableKey(
      self.protocol, bool(self.unsearched), bool(self.search)))

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
  def own_changes(self) -> str:
    """Its own values of changed settings, and how others were searched."""
    own = identity.flatten(self.config)
    return listed([*(f'{name}={shown(own.get(name, "unset"))}'
                     for name in sorted(self.unsearched)),
                   *([self.search.text] if self.search else [])])

  @property
  def unsearched(self) -> dict:
    """The `changes` without the fields that were searched."""
    searched = self.search.grid if self.search else ()
    return {name: value for name, value in self.changes.items()
            if name not in searched}

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
  def by_chance(self) -> bool:
    """Whether its difference from the baseline is not significant."""
    return self.above_baseline is not None and not self.off_baseline

  @property
  def digits(self) -> int:
    """Number of significant digits after the point of its percentages."""
    return 2 if self.interval is None else digits(
        self.interval.low, self.interval.high)

  @property
  def deviation(self) -> float | None:
    """Standard deviation of its seeds' accuracies; see `statistics`."""
    return self.sample and statistics.deviation(self.sample)

  @property
  def params(self) -> int | None:
    return self.largest('num_params')

  @functools.cached_property
  def state_size(self) -> int | None:
    """Numbers that one layer keeps from token to token, or None."""
    return next((size for size in map(states.of_run, self.runs)
                 if size is not None), None)

  @property
  def devices(self) -> list[str]:
    """The devices of each seed, and how many runs shared them."""
    return [(f'{run.num_devices} x ' if run.num_devices > 1 else '')
            + run.device + (f', {run.runs_at_once} runs at once'
                            if run.runs_at_once > 1 else '')
            for run in self.runs]

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
    """Returns the mean of a score over finished runs that have the split."""
    scores = [getattr(run, split) for run in self.finished]
    return mean([getattr(s, field) for s in scores if s is not None])

  def per_device(self, field: str) -> list[float | None]:
    """Returns [mean of `field`]; on several devices, each run's value."""
    if len(set(self.devices)) == 1:
      return [mean(self.values(field))]
    return [getattr(run, field) for run in self.runs]


def mean(values: Sequence[float]) -> float | None:
  return math.fsum(values) / len(values) if values else None


def group(runs: Iterable[tuple[str, Result]]) -> list[Row]:
  """Groups pairs (file, result) into rows: the seeds of each configuration."""
  groups = collections.defaultdict(dict)
  for name, run in runs:
    groups[store.key(run)][run.seed] = run, name
  families = {entry.name: entry.family for entry in catalogue.read()}
  rows = []
  for _, seeds in sorted(groups.items()):
    found, names = zip(*(seeds[seed] for seed in sorted(seeds)), strict=True)
    rows.append(Row(list(found), list(names),
                    families.get(found[0].model, OTHER)))
  _name_variants(rows)
  return rows


def _name_variants(rows):
  """Sets each row's variant: settings that differ between the model's rows."""
  alike = collections.defaultdict(list)
  for row in rows:
    alike[row.task, row.model, row.table].append(row)
  for members in alike.values():
    settings = [_settings(row) for row in members]
    differing = sorted(name for name in set().union(*settings)
                       if len({s.get(name, 'unset') for s in settings}) > 1)
    # Changes from the protocol have a column of their own.
    changed = set().union(*(row.changes for row in members))
    for row, mine in zip(members, settings, strict=True):
      row.variant = listed(
          f'{plain(name, _LETTERS)}={plain(mine.get(name, "unset"), _LETTERS)}'
          for name in differing if name not in changed)


def _settings(row):
  """Returns {field: its value as text} of fields that can differ."""
  values = fields.added(row.model) | identity.experiment(row.config)
  return {**{name: shown(value) for name, value in values.items()},
          'data': row.data[:8]}


def shown(value) -> str:
  """Returns a value of a config as text."""
  return value if isinstance(value, str) else json.dumps(value)


def listed(texts: Iterable[str]) -> str:
  """Joins at most `_NAMED` texts, and adds how many are left out."""
  texts = list(texts)
  more = [f'{len(texts) - _NAMED} more'] if len(texts) > _NAMED else []
  return ', '.join(texts[:_NAMED] + more)


def departures(changes: Mapping, config: Mapping) -> str:
  """Describes the settings that differ from the protocol, by field.

  Args:
    changes: {field: the protocol's value}.
    config: the config that has other values.
  """
  ours = identity.flatten(config)
  short = lambda value: plain(shown(value), _LETTERS)
  return listed(
      f'{plain(name, _LETTERS)} {short(ours.get(name, "unset"))} instead of '
      f'{short(value)}' for name, value in sorted(changes.items()))


def compare_parameters(rows: Sequence[Row], counted: int | None) -> None:
  """Compares the parameters of rows with those of the Transformer.

  The arena allows 10% more. A protocol may have been tried with Transformers of
  several sizes; the size that most rows have sets the budget. In a tie, more
  finished seeds decide, then fewer parameters.

  Args:
    rows: rows of one task and protocol.
    counted: the Transformer's parameters, used if it has no row; None if
      unknown.
  """
  def size(row):
    return [row.setting('encoder', name) for name in _SIZES]
  peers = [r for r in rows if not r.changes] or rows
  candidates = [r for r in peers if r.model == catalogue.REFERENCE and r.params]
  usual = max(candidates, default=None, key=lambda c: (
      sum(size(r) == size(c) for r in peers), len(c.finished), -c.params))
  reference = usual.params if usual else counted
  for row in rows:
    if reference and row.params:
      row.ratio = row.params / reference
      row.heavy = 10 * row.params > 11 * reference
