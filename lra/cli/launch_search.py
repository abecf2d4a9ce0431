"""Runs --search: trials without a test, then the chosen setting with all seeds.
"""

import time

from absl import flags
from ml_collections import config_flags

from lra.cli import launch, options
from lra.core.errors import UserError
from lra.core.formats import percent
from lra.many import best, search
from lra.schema import identity
from lra.schema.result import SEARCHED
from lra.schema.search import Search


def run(experiment) -> int:
  """Searches settings of an experiment; returns the exit code.

  Raises:
    UserError: --space, a trial or the chosen run needs to be corrected.
  """
  fields = search.space(options.SPACE.value)
  if experiment.config.train.include_val:
    raise UserError('--search chooses by validation: leave out '
                    'train.include_val=True.')
  asked = config_flags.get_override_values(flags.FLAGS['config'])
  numbers = launch.seeds_of(experiment, asked)
  tried, results, began = {}, {}, time.monotonic()
  trials = _Trials(fields, numbers[0])
  for number, trial in enumerate(
      trials.study.trials(options.TRIALS.value), 1):
    one, = launch.of_grid(experiment, asked, [list(trial.changes)], '--space')
    one = one.with_seed(numbers[0])
    if one.folder not in tried:
      code = launch.train_sources([one], {
          'max_minutes': launch.minutes_left(began), 'log': options.LOG.value})
      if code:
        return code
      result = trials.train(one, trial, began)
      if result is not None and result.status not in SEARCHED:
        print(launch.summary(result, one.folder))
        return launch.EXIT[result.status]
      tried[one.folder], results[one.folder] = one, result
    _tell(trial, results[one.folder])
    print(f'[{number} of {options.TRIALS.value} trials] '
          f'{" ".join(trial.changes)}: {_said(results[one.folder])}',
          flush=True)
  whole = [result for result in results.values() if result is not None]
  found = best.of([[result] for result in whole])
  made = _search(fields, numbers[0], tried, results)
  if found.index is None:
    print(f'{made.text}: none, since the loss of all was not finite')
    return launch.EXIT['diverged']
  chosen = whole[found.index]
  place = next(folder for folder, result in results.items() if result is chosen)
  print(f'{made.text}: {" ".join(_words(fields, chosen.config))} '
        f'({percent(found.means[found.index])}%)', flush=True)
  if not options.TEST.value:
    return launch.EXIT['validated']
  return launch.train_all(
      [tried[place].with_seed(seed) for seed in numbers], made)


class _Trials:
  """Trains the trials of a search one after another.

  They share data, and compiled steps if they have the same shapes.
  """

  def __init__(self, fields, seed):
    from lra.run.process_cache import ProcessCache
    self.study, self._shared = search.Study(fields, seed), ProcessCache()
    self._shared.varied = list(fields)

  def train(self, one, trial, began):
    """Returns the result of a trial's run; None if it was pruned."""
    from lra.run import train as train_lib
    steps = one.config.train.steps
    result = launch.result_in(one.folder)
    ended = result is not None and result.status in SEARCHED
    if ended:
      launch.check_finished(one.folder, one.config.to_dict(), result)
    if trial.replay(one.folder, steps, ended):
      return None
    if ended:
      return result
    pruned = []

    def watch(step, accuracy):
      reason = trial.watch(step, accuracy)
      pruned.extend([reason] * bool(reason))
      return reason

    result = train_lib.train(
        one, launch.minutes_left(began),
        log=options.LOG.value, tested=False, shared=self._shared, watch=watch)
    return None if pruned else result


def _tell(trial, result):
  """Ends a trial; one whose loss was not finite counts as accuracy 0."""
  trial.tell(None if result is None else (
      0.0 if result.status == 'diverged' else result.val.accuracy))


def _said(result):
  if result is None:
    return search.PRUNED
  return 'the loss was not finite' if result.status == 'diverged' else (
      f'validation accuracy {percent(result.val.accuracy)}%')


def _words(fields, config):
  values = identity.flatten(config)
  return [f'{name}={values[name]}' for name in fields]


def _search(fields, seed, tried, results):
  """Returns the search for the records of the chosen runs."""
  scores = []
  for folder, one in tried.items():
    values, result = identity.flatten(one.config.to_dict()), results[folder]
    scores.append((
        {name: values[name] for name in fields},
        None if result is None or result.status == 'diverged' else (
            result.val.accuracy)))
  return Search(
      tried=len(tried), chosen_by='validation accuracy', seed=seed,
      grid={name: search.shown(spec) for name, spec in fields.items()},
      scores=scores, sampler='tpe',
      pruned=sum(result is None for result in results.values()))
