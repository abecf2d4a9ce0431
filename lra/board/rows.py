"""A row of the leaderboard: the runs of one configuration, its seeds."""

import collections
import dataclasses
import functools
import json
import math
import pathlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lra.board import statistics
from lra.board.statistics import Interval, Sample
from lra.core import bits, tasks
from lra.core.formats import digits, plain
from lra.schema import identity
from lra.schema.result import Result

# Largest number of fields in a row's name, and of letters in a value.
_NAMED, _LETTERS = 12, 60


@dataclasses.dataclass(frozen=True, order=True)
class TableKey:
  """The key of a table, equal for all of its rows.

  It is `changed` if settings differ from the protocol's, apart from `searched`
  ones: a search gives a model more chances than the protocol's own settings.
  """
  protocol: str
  changed: bool = False
  searched: bool = False

  @property
  def departures(self) -> str:
    """How its rows depart from the protocol as it is, '' if they do not."""
    return (', settings changed' * self.changed
            + ', settings searched' * self.searched)

  title = property(lambda self: self.protocol + self.departures)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
  """The runs of one configuration, by seed; nothing here depends on other rows.

  `files` has the path of each one's record from the folder of the results.
  """
  runs: Sequence[Result]
  files: Sequence[str] = ()

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
  def changes(self) -> dict:
    """{field: the protocol's value} of the settings that differ."""
    return {name: value for run in self.runs
            for name, value in (run.changes or {}).items()}

  @property
  def unsearched(self) -> dict:
    """The `changes` without the fields that were searched."""
    searched = self.search.grid if self.search else ()
    return {name: value for name, value in self.changes.items()
            if name not in searched}

  @property
  def own_changes(self) -> str:
    """Its own values of changed settings, and how others were searched."""
    own = identity.flatten(self.config)
    return listed([*(f'{name}={shown(own.get(name, "unset"))}'
                     for name in sorted(self.unsearched)),
                   *([self.search.text] if self.search else [])])

  finished = property(
      lambda self: [run for run in self.runs if run.status == 'ok'])
  accuracies = property(
      lambda self: [run.test.accuracy for run in self.finished])
  mean = property(lambda self: mean(self.accuracies))

  @functools.cached_property
  def sample(self) -> Sample | None:
    """Its test scores for statistics, None without a finished run.

    A probe's answers within a sequence count as one example: their mean varies
    at most like a single answer.
    """
    tests = [run.test for run in self.finished]
    kept = all(t.correct and t.examples == tests[0].examples for t in tests)
    return Sample(
        tuple(self.accuracies),
        max(tests[0].examples // tasks.get(self.task).answers, 1),
        np.array([bits.unpack(t.correct, t.examples) for t in tests])
        if kept else None) if tests else None

  def longer(self, name: str) -> Sample | None:
    """Returns its scores in the test of a length; None without this test."""
    found = [run.longer[name] for run in self.finished if name in run.longer]
    return Sample(tuple(scores.accuracy for scores in found), min(
        scores.examples for scores in found)) if found else None

  @functools.cached_property
  def interval(self) -> Interval | None:
    return self.sample and statistics.interval(self.sample)

  @property
  def digits(self) -> int:
    """Number of significant digits after the point of its percentages."""
    return 2 if self.interval is None else digits(
        self.interval.low, self.interval.high)

  @property
  def state_size(self) -> int | None:
    """Numbers that one layer keeps from token to token; None if unknown."""
    return next((size for run in self.runs
                 if (size := _state_size(run)) is not None), None)

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


def _state_size(run):
  """Returns the state size in a record; the mixer computes it for old ones."""
  if run.state_size is not None:
    return run.state_size
  config = identity.flatten(run.config)
  length = config.get('seq_len') or tasks.get(run.task).seq_len
  cls = config.get('encoder.pooling') == 'cls'
  try:
    return _computed(json.dumps(run.config.get('model'), sort_keys=True),
                     config.get('encoder.width'), length + cls)
  except Exception:  # a record's values may raise any error
    return None


@functools.lru_cache(maxsize=1000)
def _computed(model, width, length):
  # Imported late: it takes a second, and new records do not need it.
  from lra import models
  from lra.nn.mixer import state_size
  arguments = json.loads(model)
  mixer = models.mixer(arguments.pop('name'))
  return state_size(mixer(**arguments), width, length)


def shown(value) -> str:
  """Returns a value of a config as text."""
  return value if isinstance(value, str) else json.dumps(value)


def setting_text(value) -> str:
  """Returns the name or value of a setting, cut to fit in a table."""
  return plain(shown(value), _LETTERS)


def listed(texts: Iterable[str]) -> str:
  """Joins at most `_NAMED` texts, and adds how many are left out."""
  texts = list(texts)
  more = [f'{len(texts) - _NAMED} more'] if len(texts) > _NAMED else []
  return ', '.join(texts[:_NAMED] + more)


def labels(rows: Sequence[Row]) -> list[str]:
  """Returns what sets rows of a model apart from the protocol, in few words.

  It is a name of `names.toml`, or else two changes: those that the fewest rows
  share, then the shortest. It is '' for a row without changes.
  """
  changes = []
  for row in rows:
    own = identity.flatten(row.config)
    changes.append({name: shown(own.get(name, 'unset'))
                    for name in row.unsearched})
  shared = collections.Counter(one for own in changes for one in own.items())

  def label(own):
    for name, wanted in _declared().items():
      if all(part in own.get(field, '') and field in own
             for field, part in wanted.items()):
        return name
    two = sorted(own.items(), key=lambda one: (shared[one], len(short(*one))))
    return ', '.join(short(*one) for one in two[:2])

  def short(name, value):
    return f'{setting_text(name.split(".")[-1])} {setting_text(value)}'
  return [label(own) for own in changes]


@functools.cache
def _declared():
  path = pathlib.Path(__file__).with_name('names.toml')
  return tomllib.loads(path.read_text('utf-8'))


def departures(changes: Mapping, config: Mapping) -> str:
  """Describes `changes`, {field: the protocol's value}, of a config."""
  ours = identity.flatten(config)
  return listed(
      f'{setting_text(name)} {setting_text(ours.get(name, "unset"))} '
      f'instead of {setting_text(value)}'
      for name, value in sorted(changes.items()))
