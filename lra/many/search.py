"""Searches settings with Optuna: `run_lra.py --search=optuna`.

The sampler is TPE (Bergstra et al. 2011, Algorithms for Hyper-Parameter
Optimization, section 4); the first ten settings are random. After at least five
whole trials, the median pruner stops a trial whose best validation accuracy so
far is below the median of the earlier trials at that step.

Nothing is stored but the runs. A search that was interrupted is repeated from
its first trial: the sampler's seed is that of the search and the number of the
trial, so it draws the same settings if it is told the same accuracies. These
are read from the runs: finished and pruned ones are not trained again, and the
run that was killed resumes.
"""

import ast
import importlib.util
import math
import pathlib
import re
import warnings
from collections.abc import Iterator, Mapping

from lra.core import paths
from lra.core.errors import UserError
from lra.run import curves
from lra.schema import grid

PRUNED = 'pruned by the search'  # a reason to stop
_RANGE = re.compile(r'(log|uniform|int)\(([^,]+),([^,]+)\)')
_FORMS = ('write train.learning_rate=log(1e-4,1e-1), '
          'train.weight_decay=uniform(0,0.1), model.num_heads=int(1,8) or '
          'train.warmup_steps=[0,100]')
_DIGITS = 3  # significant digits of a number that is drawn
_STRIDE = 1_000_003  # between the seeds of two searches


def space(text: str) -> dict[str, tuple]:
  """Reads --space: the fields to search.

  Args:
    text: words such as `train.learning_rate=log(1e-4,1e-1)`.

  Returns:
    {field: ('log', low, high)} of numbers on a logarithmic scale, 'uniform' of
    numbers or 'int' of integers, low and high included; or
    ('values', value, value, ...).

  Raises:
    UserError: a word has another form, or a range is empty.
  """
  words = grid.check(grid.words(text))
  if not words:
    raise UserError(f'--space has no field: {_FORMS}.')
  return dict(map(_field, words))


def _field(word):
  name, _, value = word.partition('=')
  if value.startswith('['):
    return name, ('values', *(
        one.partition('=')[2] for one in grid.values(word)))
  found = _RANGE.fullmatch(value)
  try:
    kind, *ends = found.groups()
    low, high = map(int if kind == 'int' else float, ends)
  except (AttributeError, ValueError):
    raise UserError(f'--space: {word} is no range: {_FORMS}.') from None
  if not (-math.inf < low < high < math.inf) or (kind == 'log' and low <= 0):
    raise UserError(
        f'--space: {word} is no range: write two finite numbers, the lower one '
        'first; those of log are above 0.')
  return name, (kind, low, high)


def shown(spec: tuple) -> list:
  """Returns the values of a field of `space`, or its range as one text."""
  kind, *values = spec
  return list(map(_literal, values)) if kind == 'values' else [
      f'{kind}({",".join(f"{value:g}" for value in values)})']


def _literal(text):
  """Returns the number, list or other value that a text writes, or the text."""
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text


def check() -> None:
  """Raises UserError if Optuna is not installed."""
  if importlib.util.find_spec('optuna') is None:
    raise UserError('--search=optuna needs Optuna, which is not installed: '
                    f'{paths.extra("search")}.')


class Study:
  """The trials of a search, in memory.

  Args:
    fields: result of `space`.
    seed: seed of the search.
  """

  def __init__(self, fields: Mapping[str, tuple], seed: int):
    check()
    import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    makers = {
        'log': lambda *ends: optuna.distributions.FloatDistribution(
            *ends, log=True),
        'uniform': optuna.distributions.FloatDistribution,
        'int': optuna.distributions.IntDistribution,
        'values': lambda *values: (
            optuna.distributions.CategoricalDistribution(values))}
    self._fields = {name: makers[kind](*values)
                    for name, (kind, *values) in fields.items()}
    self._seed, self._optuna = seed, optuna
    self._study = optuna.create_study(
        direction='maximize', pruner=optuna.pruners.MedianPruner())

  def trials(self, count: int) -> Iterator['Trial']:
    """Yields trials; each must be told its end before the next one is drawn."""
    for number in range(count):
      self._study.sampler = self._optuna.samplers.TPESampler(
          seed=(self._seed * _STRIDE + number) % 2**32)
      yield Trial(self._study, self._study.ask(self._fields))


class Trial:
  """A setting to try.

  Attributes:
    changes: its words `field=value`.
  """

  def __init__(self, study, trial):
    self._study, self._trial = study, trial
    self.changes = tuple(
        f'{name}={_rounded(value)}' for name, value in trial.params.items())

  def watch(self, step: int, accuracy: float) -> str:
    """Takes a validation accuracy; returns `PRUNED`, or '' to go on."""
    with warnings.catch_warnings():
      # A resumed run reports some steps again.
      warnings.simplefilter('ignore')
      self._trial.report(accuracy, step)
    return PRUNED if self._trial.should_prune() else ''

  def replay(self, folder: pathlib.Path, steps: int, ended: bool) -> str:
    """Takes the validation accuracies of a run's log.

    Args:
      folder: its run directory.
      steps: its number of updates; the last validation is left out, as in
        training.
      ended: whether the run is complete, and so was not pruned.

    Returns:
      `PRUNED` if it was pruned, else ''.
    """
    path = folder / 'metrics.jsonl'
    points = curves.read(path) if path.exists() else {}
    for (split, step), point in sorted(points.items()):
      if split == 'val' and step < steps and (
          self.watch(step, point['accuracy']) and not ended):
        return PRUNED
    return ''

  def tell(self, accuracy: float | None) -> None:
    """Ends the trial with its validation accuracy; None if it was pruned."""
    if accuracy is None:
      from optuna.trial import TrialState
      self._study.tell(self._trial, state=TrialState.PRUNED)
    else:
      self._study.tell(self._trial, accuracy)


def _rounded(value):
  """Returns a value as text, with few digits if it is a float."""
  return f'{value:.{_DIGITS}g}' if isinstance(value, float) else str(value)
