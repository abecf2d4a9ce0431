"""Chooses settings by validation: the best of a grid, a file or a search.

Runs that differ in their seed are one setting. The setting with the highest
mean validation accuracy is the best. No test score is looked at, and only that
of the best setting is shown.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lra.board import words
from lra.board.rows import Row
from lra.core import paths
from lra.core.formats import aligned, percent
from lra.many.runs import Run, Setting, Unit
from lra.schema import identity
from lra.schema.result import SEARCHED, Result, Search


class Best(NamedTuple):
  """The index of the best of several settings, and each one's mean accuracy.

  The index is None if no setting has a score. A mean is None if a run of the
  setting has no score, or its loss was not finite.
  """
  index: int | None
  means: tuple[float | None, ...]


def of(settings: Sequence[Sequence[Result]]) -> Best:
  """Returns the best of settings, given by the results of their seeds.

  It has the highest mean validation accuracy. Ties are decided by the lower
  mean validation loss, then by the order.
  """
  means = tuple(_mean(map(score, runs)) for runs in settings)
  found = [i for i, mean in enumerate(means) if mean is not None]
  # Means of floats that should be equal may differ in their last digits.
  return Best(min(found, default=None, key=lambda i: (
      -round(means[i], 9),
      statistics.fmean(run.val.loss for run in settings[i]), i)), means)


def _mean(scores):
  scores = list(scores)
  return None if None in scores else statistics.fmean(scores)


def score(run: Result) -> float | None:
  """Returns the validation accuracy of a run, None if it diverged."""
  return None if run.status == 'diverged' else getattr(
      run.val, 'accuracy', None)


class Choice(NamedTuple):
  """The setting that a search chose: its runs, and how, for their records.

  `runs` is () if the loss of every setting was not finite.
  """
  runs: Setting
  search: Search


def choice(unit: Unit) -> Choice | None:
  """Returns the best setting of a search; None if a run of it has not ended.

  No test score is looked at, though an earlier command may have made one.
  """
  results = [run.result()[0] for run in unit.search]
  if any(run is None or run.status not in SEARCHED for run in results):
    return None
  flat = [identity.flatten(run.config) for run in results]
  settings = [{name: values[name] for name in unit.searched} for values in flat]
  index, scores = of([[run] for run in results])
  grid = {name: [json.loads(text) for text in dict.fromkeys(
      json.dumps(setting[name]) for setting in settings)]
          for name in unit.searched}
  shorter = {'steps': results[0].steps} if unit.search[0].trial_of else {}
  return Choice(() if index is None else unit.final(index), Search(
      tried=len(settings), grid=grid, chosen_by='validation accuracy',
      seed=results[0].seed, scores=list(zip(settings, scores, strict=True)),
      seconds=sum(run.seconds for run in results), **shorter))


def wanted(unit: Unit) -> list[Run]:
  """Returns the runs to train, as far as they are known.

  Of a search, these are the runs that it compares, and the other runs of the
  chosen setting. Before the choice, the first setting stands for it: others
  take as long.
  """
  if not unit.searched:
    return unit.runs
  chosen = choice(unit)
  runs = unit.final(0) if chosen is None else chosen.runs
  return list(dict.fromkeys([*unit.search, *runs]))


def names(configs: Sequence[Mapping]) -> list[str]:
  """Returns the fields in which configs, {dotted field: value}, differ, as
  texts.
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


def text(groups: Sequence[Sequence[Result]],
         others: Sequence[Result] = ()) -> str:
  """Returns the best of several settings in words, with its test score if any.

  All runs of the `groups`, one per setting, have ended. `others` are runs of
  the best setting that were not compared.
  """
  best = of(groups)
  said = f'best of {len(groups)} settings by validation: '
  if best.index is None:
    return f'{said}none, since no setting has a finite score of each seed'
  runs = groups[best.index]
  name = names([identity.flatten(group[0].config) for group in groups])
  found = tested([*runs, *others])
  return (f'{said}{name[best.index]} ({percent(best.means[best.index])}%'
          f'{_seeds(len(runs))}){found and "; " + found}')


def _seeds(count):
  return f', mean of {count} seeds' if count > 1 else ''


def tested(runs: Sequence[Result]) -> str:
  """Returns the test accuracy of a setting; '' if no run has one.

  The mean of several seeds has its interval.
  """
  scored = [run for run in runs if getattr(run.test, 'examples', None)]
  if not scored:
    return ''
  if len(scored) == 1:
    return f'test accuracy {percent(scored[0].test.accuracy)}%'
  row = Row(scored)
  known = row.interval
  mean, low, high = (f'{percent(x, row.digits)}%' for x in (
      row.mean, known.low, known.high))
  over = 'of the mean' if known.over_seeds else 'by the test examples alone'
  return (f'{len(scored)} seeds: test accuracy {mean} (95% interval {over} '
          f'{low} to {high})')


def ranked(units: Iterable[Unit]) -> list[str]:
  """Returns lines that rank the best settings of models, as the page does.

  Only runs on one test split are compared.
  """
  groups, lines = {}, []
  for unit in units:
    best = unit.runs if len(unit.settings) == 1 else of_unit(unit, {})[0]
    found = [result for run in best if (result := run.result()[0])
             and getattr(result.test, 'examples', None)]
    if found:
      groups.setdefault((found[0].task, found[0].data_fingerprint), []).append(
          (unit.settings[0][0].arm or unit.title, Row(found)))
  for (task, _), members in groups.items():
    if len(members) > 1:
      lines += words.ranks(task, members)
  return lines


def standing(units: Iterable[Unit]) -> list[str]:
  """Returns lines that say where models stand in the laptop arena, if any.

  They are compared with the records that come with this program.
  """
  from lra.board import frame, suite  # imported late: pandas takes a moment
  arena, own = suite.suite(), {}
  for unit in units:
    for result in [run.result()[0] for run in of_unit(unit, {})[0]]:
      if result and result.protocol == arena.protocol and getattr(
          result.test, 'examples', None):
        own.setdefault(result.model, {}).setdefault(result.task, []).append(
            result)
  if not own:
    return []
  boards, _ = frame.load(paths.PACKAGED / 'runs', paths.PACKAGED / 'floors')
  lines = []
  for model, found in own.items():
    lines += [f'{model} in the laptop arena:', *aligned([
        (f'  {ability}', *others) for ability, *others in suite.stands(
            model, {task: Row(runs).sample for task, runs in found.items()},
            boards)])]
  return lines


def of_unit(unit: Unit, so_far: Mapping[Run, float | None]
            ) -> tuple[Setting, str]:
  """Returns the runs of the best setting of a unit, and a text that names it.

  The runs are () while a run has not ended; the text is '' while no run has a
  score. `so_far` has the best validation accuracy of each run up to now.
  """
  compared = [runs[:1] if unit.searched else runs for runs in unit.settings]
  results = [[run.result()[0] for run in runs] for runs in compared]
  if all(run is not None and run.status in SEARCHED
         for runs in results for run in runs):
    index = of(results).index
    best = () if index is None else unit.settings[index]
    others = [result for run in best[len(compared[0]):]
              if (result := run.result()[0])]
    return best, f'{unit.title}: {text(results, others)}'
  known = [[score for run in runs if (score := so_far.get(run)) is not None]
           for runs in compared]
  means = [statistics.fmean(scores) if scores else -1.0 for scores in known]
  first = means.index(max(means))
  if not known[first]:
    return (), ''
  name = names([json.loads(runs[0].repetition)[0] for runs in compared])[first]
  return (), (
      f'{unit.title}: best so far of {sum(map(bool, known))} of '
      f'{len(compared)} settings by validation: {name} '
      f'({percent(means[first])}%{_seeds(len(known[first]))})')
