"""Searches settings with Optuna: `run_lra.py --config=... --search=optuna`.

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
import pathlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

from lra.core import paths
from lra.core.errors import Impossible, UserError
from lra.core.formats import percent, shortened
from lra.many import choose, execute
from lra.many.execute import EXIT, Options
from lra.run import curves
from lra.schema import grid, identity
from lra.schema.fields import COUNT, LARGEST
from lra.schema.result import SEARCHED, Search

PRUNED = 'pruned by the search'  # a reason to stop
_RANGE = re.compile(r'(log|uniform|int)\(([^,]+),([^,]+)\)')
_FORMS = ('write train.learning_rate=log(1e-4,1e-1), '
          'train.weight_decay=uniform(0,0.1), model.num_heads=int(1,8) or '
          'train.warmup_steps=[0,100]')
_STRIDE = 1_000_003  # between the seeds of two searches


def space(text: str) -> dict[str, tuple]:
  """Reads --space, words such as `train.learning_rate=log(1e-4,1e-1)`.

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
  made = dict(map(_field, words))
  if why := identity.unscored(made):
    raise UserError(f'--space: {why}.')
  return made


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
  most = COUNT if kind == 'int' else LARGEST
  if not -most <= low < high <= most or (kind == 'log' and low <= 0):
    raise UserError(
        f'--space: {shortened(word, 200)} is no range: write two numbers of at '
        f'most {most:g}, the lower one first; those of log are above 0.')
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


def trials(fields: Mapping[str, tuple], seed: int, count: int
           ) -> Iterator['Trial']:
  """Yields trials of fields of `space`, kept in memory.

  Each must be told its end before the next one is drawn.
  """
  if importlib.util.find_spec('optuna') is None:
    raise UserError('--search=optuna needs Optuna, which is not installed: '
                    f'{paths.extra("search")}.')
  import optuna
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  drawn = {name: _distribution(*spec) for name, spec in fields.items()}
  study = optuna.create_study(
      direction='maximize', pruner=optuna.pruners.MedianPruner())
  for number in range(count):
    study.sampler = optuna.samplers.TPESampler(
        seed=(seed * _STRIDE + number) % 2**32)
    yield Trial(study, study.ask(drawn))


def _distribution(kind, *values):
  from optuna import distributions
  if kind == 'values':
    return distributions.CategoricalDistribution(values)
  if kind == 'int':
    return distributions.IntDistribution(*values)
  return distributions.FloatDistribution(*values, log=kind == 'log')


class Trial:
  """A setting to try; `changes` are its words `field=value`."""

  def __init__(self, study, trial):
    self._study, self._trial = study, trial
    self.changes = tuple(
        f'{name}={value:.3g}' if isinstance(value, float) else f'{name}={value}'
        for name, value in trial.params.items())

  def watch(self, step: int, accuracy: float) -> str:
    """Takes a validation accuracy; returns `PRUNED`, or '' to go on."""
    with warnings.catch_warnings():
      # A resumed run reports some steps again.
      warnings.simplefilter('ignore')
      self._trial.report(accuracy, step)
    return PRUNED if self._trial.should_prune() else ''

  def replay(self, folder: pathlib.Path, steps: int, ended: bool) -> str:
    """Takes the validation accuracies in the log of a run; see `watch`.

    As in training, the validation after all `steps` is left out. A run that has
    `ended` was not pruned.
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
    from optuna.trial import TrialState
    self._study.tell(self._trial, accuracy, state=(
        TrialState.PRUNED if accuracy is None else None))


def train(made: Callable, fields: Mapping[str, tuple], count: int,
          seeds: Sequence[int], options: Options) -> int:
  """Trains trials without a test, then the best setting with all seeds.

  Trials share data, and compiled steps if they have the same shapes. One whose
  loss was not finite counts as accuracy 0, and so does one that cannot be
  trained, which is not among the settings of the record.

  Args:
    made: returns the experiment of changes, words `field=value`.
    fields: result of `space`.
    count: number of settings to try.
    seeds: the first one is that of the trials.
    options: how runs are trained.

  Returns:
    The exit code.
  """
  from lra.run.process_cache import ProcessCache
  shared, tried, failed = ProcessCache(), {}, []
  shared.varied = list(fields)
  for number, trial in enumerate(trials(fields, seeds[0], count), 1):
    try:
      one = made(trial.changes).with_seed(seeds[0])
      if one.folder not in tried:
        code = execute.train_sources([one], options)
        if code:
          return code
        result = _result(one, trial, options, shared)
        if result is not None and result.status == 'oom':
          raise Impossible('The device has too little memory.')
        if result is not None and result.status not in SEARCHED:
          print(execute.summary(result, one.folder))
          return EXIT[result.status]
        tried[one.folder] = one, result
    except Impossible as error:
      failed.append(error)
      accuracy, said = 0.0, error
    else:
      result = tried[one.folder][1]
      if result is None:
        accuracy, said = None, PRUNED
      elif result.status == 'diverged':
        accuracy, said = 0.0, 'the loss was not finite'
      else:
        accuracy = result.val.accuracy
        said = f'validation accuracy {percent(accuracy)}%'
    trial.tell(accuracy)
    print(f'[{number} of {count} trials] {" ".join(trial.changes)}: {said}',
          flush=True)
  if not tried:
    raise failed[0]
  whole = [(one, result) for one, result in tried.values() if result]
  best = choose.of([[result] for _, result in whole])
  search = _search(fields, seeds[0], tried.values())
  if best.index is None:
    print(f'{search.text}: none, since the loss of all was not finite')
    return EXIT['diverged']
  chosen, result = whole[best.index]
  values = identity.flatten(result.config)
  print(f'{search.text}: '
        f'{" ".join(f"{name}={values[name]}" for name in fields)} '
        f'({percent(best.means[best.index])}%)', flush=True)
  if not options.test:
    return EXIT['validated']
  return execute.train(
      [chosen.with_seed(seed) for seed in seeds], options, search)


def _result(one, trial, options, shared):
  """Returns the result of a trial's run; None if it was pruned."""
  from lra.run import train as train_lib
  result = execute.finished(one, tested=False)
  if trial.replay(one.folder, one.config.train.steps, result is not None):
    return None
  if result:
    return result
  pruned = []

  def watch(step, accuracy):
    reason = trial.watch(step, accuracy)
    pruned.extend([reason] * bool(reason))
    return reason

  result = train_lib.train(one, options.minutes, log=options.log, tested=False,
                           shared=shared, watch=watch)
  return None if pruned else result


def _search(fields, seed, tried):
  """Returns the search for the records of the chosen runs."""
  flat = [identity.flatten(one.config.to_dict()) for one, _ in tried]
  results = [result for _, result in tried]
  return Search(
      tried=len(tried), chosen_by='validation accuracy', seed=seed,
      grid={name: shown(spec) for name, spec in fields.items()},
      scores=[({name: values[name] for name in fields},
               result and choose.score(result))
              for values, result in zip(flat, results, strict=True)],
      sampler='tpe', pruned=results.count(None))
