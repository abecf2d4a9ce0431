"""Compares the settings of a model by validation: the best of a sweep or grid.

Runs that differ in their seed are one setting. The setting with the highest
mean validation accuracy is the best. No test score is looked at, and only that
of the best setting is shown.
"""

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence

from lra.core.formats import percent
from lra.many.sweep import Entry, by_config
from lra.schema import identity
from lra.schema.result import SEARCHED, Result

Setting = tuple[Entry, ...]


@dataclasses.dataclass(frozen=True)
class Best:
  """The best of several settings.

  Attributes:
    index: its index; None if no setting has a score.
    means: the mean validation accuracy of each setting; None if a run of it
      has none, or its loss was not finite.
  """
  index: int | None
  means: tuple[float | None, ...]


def of(settings: Sequence[Sequence[Result]]) -> Best:
  """Returns the setting with the highest mean validation accuracy.

  Ties are decided by the lower mean validation loss, then by the order.

  Args:
    settings: the results of each setting, one for each seed.
  """
  means = tuple(_mean(map(_score, runs)) for runs in settings)
  found = [i for i, mean in enumerate(means) if mean is not None]
  # Means of floats that should be equal may differ in their last digits.
  return Best(min(found, default=None, key=lambda i: (
      -round(means[i], 9), _loss(settings[i]), i)), means)


def _loss(runs):
  return statistics.fmean(run.val.loss for run in runs)


def _mean(scores):
  scores = list(scores)
  return None if None in scores else statistics.fmean(scores)


def _score(run):
  """Returns the validation accuracy of a run, None if it diverged."""
  return None if run.status == 'diverged' else getattr(
      run.val, 'accuracy', None)


def names(configs: Sequence[Mapping]) -> list[str]:
  """Returns `field=value` of the fields in which configs differ, as texts.

  Args:
    configs: {dotted field: value} of each.
  """
  fields = [name for name in dict.fromkeys(
      name for config in configs for name in config)
            if name != 'seed' and len({
                json.dumps(config.get(name)) for config in configs}) > 1]
  return [' '.join(
      f'{name}={value if isinstance(value, str) else json.dumps(value)}'
      for name in fields if (value := config.get(name)) is not None)
          for config in configs]


def settings(results: Sequence[Result]) -> list[list[Result]]:
  """Groups the results of runs that differ in their seed only, in order."""
  groups = {}
  for result in results:
    groups.setdefault(identity.config_hash(result.config), []).append(result)
  return list(groups.values())


def text(groups: Sequence[Sequence[Result]]) -> str:
  """Returns the best of several settings in words, with its test score if any.

  Args:
    groups: the results of each setting; all runs have ended.
  """
  best = of(groups)
  said = f'best of {len(groups)} settings by validation: '
  if best.index is None:
    return f'{said}none, since no setting has a finite score of each seed'
  runs = groups[best.index]
  name = names([identity.flatten(group[0].config) for group in groups])
  found = tested(runs)
  return (f'{said}{name[best.index]} ({percent(best.means[best.index])}%'
          f'{_seeds(len(runs))}){found and "; " + found}')


def _seeds(count):
  return f', mean of {count} seeds' if count > 1 else ''


def tested(runs: Sequence[Result]) -> str:
  """Returns the test accuracy of a setting; '' if no run has one.

  The mean of several seeds has its interval.
  """
  from lra.board.rows import Row
  from lra.core import formats
  scored = [run for run in runs if getattr(run.test, 'examples', None)]
  if not scored:
    return ''
  if len(scored) == 1:
    return f'test accuracy {percent(scored[0].test.accuracy)}%'
  row = Row(scored)
  known = row.interval
  mean, low, high = (f'{formats.percent(x, row.digits)}%' for x in (
      row.mean, known.low, known.high))
  of = 'of the mean' if known.over_seeds else 'by the test examples alone'
  return (f'{len(scored)} seeds: test accuracy {mean} (95% interval {of} {low} '
          f'to {high})')


def units(entries: Sequence[Entry]) -> list[list[Setting]]:
  """Groups the runs of a sweep by config file and task, then by setting.

  The arms of a study are no settings to choose from: each is alone.
  """
  groups = {}
  for entry in entries:
    key = entry.config_flags if entry.arm else entry.flags[:1]
    groups.setdefault(key, []).append(entry)
  made = []
  for group in groups.values():
    found = {}
    for runs in by_config(group):
      found.setdefault(runs[0].config_flags, []).extend(runs)
    made.append([tuple(runs) for runs in found.values()])
  return made


def of_unit(unit: Sequence[Setting], so_far: Mapping[Entry, float | None]
            ) -> tuple[Setting, str]:
  """Returns the best setting of a unit, and it in words.

  Args:
    unit: the settings of a model on a task, at least two.
    so_far: the best validation accuracy of each run up to now.

  Returns:
    The runs of the best setting, () while a run has not ended; and the text, ''
    while no run has a score.
  """
  title = unit[0][0].flags[0].removeprefix('--config=')
  results = [[entry.result()[0] for entry in runs] for runs in unit]
  if all(run is not None and run.status in SEARCHED
         for runs in results for run in runs):
    index = of(results).index
    return (() if index is None else unit[index]), f'{title}: {text(results)}'
  known = [[score for entry in runs if (score := so_far[entry]) is not None]
           for runs in unit]
  means = [statistics.fmean(scores) if scores else -1.0 for scores in known]
  first = means.index(max(means))
  if not known[first]:
    return (), ''
  name = names([json.loads(runs[0].repetition)[0] for runs in unit])[first]
  return (), (
      f'{title}: best so far of {sum(map(bool, known))} of {len(unit)} '
      f'settings by validation: {name} ({percent(means[first])}%'
      f'{_seeds(len(known[first]))})')
