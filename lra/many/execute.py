"""Trains experiments in this process, and records their results."""

import contextlib
import dataclasses
import math
import pathlib
import time
from collections.abc import Iterable, Mapping, Sequence

from lra.board import catalogue, publish, rows
from lra.core import distributed, paths, signals
from lra.core.errors import UserError
from lra.core.formats import percent
from lra.core.terminal import say
from lra.many import choose
from lra.run import writers
from lra.run.rundir import check_config, saved
from lra.schema import identity
from lra.schema import result as result_lib
from lra.schema.result import Result, Search

EXIT = {'ok': 0, 'diverged': 3, 'oom': 4, 'stopped': signals.STOPPED,
        'validated': 0}


@dataclasses.dataclass(frozen=True)
class Options:
  """How runs are trained and recorded.

  Attributes:
    place: the leaderboard of the records.
    record: whether to record results; None records a run whose settings are
      those of its protocol.
    replace: whether a new record replaces an earlier one.
    deadline: the time of `time.monotonic` at which to stop, with checkpoints.
    log: names of writers besides metrics.jsonl; see `writers.WRITERS`.
    at_once: number of runs to train at the same time; None for the default.
    test: False ends each run before its test.
    show_test: whether to print test scores.
    profile: FIRST:LAST, the steps to trace; None for none.
    record_later: whether the process that started this one records the runs.
  """
  place: publish.Place
  record: bool | None = None
  replace: bool = False
  deadline: float = math.inf
  log: Sequence[str] = ()
  at_once: int | None = None
  test: bool = True
  show_test: bool = True
  profile: str | None = None
  record_later: bool = False

  def __post_init__(self):
    if self.replace and self.record is False:
      raise UserError('--replace and --norecord: leave out one of them.')

  @property
  def minutes(self) -> float | None:
    """The minutes left until the deadline; None without one."""
    left = max(self.deadline - time.monotonic(), 0) / 60
    return None if left == math.inf else left

  def records(self, changed: object) -> bool:
    """Returns whether a run with such changes of its protocol is recorded."""
    return self.record if self.record is not None else (
        self.replace or not changed)

  def recorded(self, result: Result) -> bool:
    """Returns whether nothing is left to publish of a finished run."""
    return not self.records(result.changes) or publish.done(
        result, self.place, replace=self.replace)


def deadline(max_minutes: float | None) -> float:
  """Returns the time of `time.monotonic` after so many minutes from now."""
  return math.inf if max_minutes is None else (
      time.monotonic() + 60 * max_minutes)


def train(runs: list, options: Options, search: Search | None = None) -> int:
  """Trains experiments to the end, a stop or a failure.

  The `search` that chose their settings is for their records.

  Returns:
    The code of a stop if any run stopped, else the largest exit code.

  Raises:
    UserError: something must be corrected. With several runs, the first error
      is raised once all have ended.
  """
  writers.check(options.log)
  how = {}
  if options.profile is not None:
    from lra.run import profile
    how['profiled'] = profile.steps(
        options.profile, runs[0].config.train.steps)
  for name in sorted({run.config.model.name for run in runs}):
    problem = catalogue.problem(name)
    if problem and distributed.is_leader():
      say(f'{problem} Until then `list` leaves the model out.')
  tasks = {run.task.name for run in runs
           if options.records(run.changes or search)}
  if tasks:
    distributed.broadcast_from_leader(
        lambda: publish.check(options.place, tasks))
  how['recorded'] = bool(tasks)
  code = train_sources(runs, options)
  if code:
    return code
  several = len({identity.config_hash(run.config.to_dict())
                 for run in runs}) > 1
  codes, results, errors = [], [], []
  for run, result in _ended(_trained(runs, options, how, errors), errors):
    codes.append(EXIT['stopped' if result is None else result.status])
    if codes[-1] == EXIT['oom'] and distributed.is_multiprocess():
      print(summary(result, run.folder))
      distributed.leave(codes[-1])  # other processes may still run
    if not distributed.is_leader():
      continue
    if result is None:
      print(f'not begun: {run.folder}')
      continue
    untested = result.model_copy(update={'test': None, 'longer': {}})
    # An earlier command may have tested the run.
    results.append(result if options.test else untested)
    print(summary(untested if several or not options.show_test else results[-1],
                  run.folder))
    if result.finished and options.test:
      with _kept(errors, run, len(runs) > 1):
        _record(result.model_copy(update={'search': search}), run.changes,
                options)
  if distributed.is_leader() and options.show_test and results:
    ending = _ending(results, len(results) == len(runs), options.test)
    if ending:
      print(ending)
  distributed.barrier()  # the leader may have waited for the page
  # The same command resumes stopped runs, and then the error is raised again.
  if errors and EXIT['stopped'] not in codes:
    raise errors[0]
  return max(codes, key=lambda code: (code == EXIT['stopped'], code))


def train_sources(runs: Iterable, options: Options) -> int:
  """Trains the unfinished runs that others start from; returns an exit code.

  They are not tested and have no records.
  """
  sources = list({one.folder: one for run in runs if (one := run.source)
                  and not saved(run.folder)}.values())
  if not sources:
    return 0
  code = train_sources(sources, options)
  if code:
    return code
  options, errors = dataclasses.replace(options, test=False), []
  for run, result in _ended(
      _trained(sources, options, {'recorded': False}, errors), errors):
    if distributed.is_leader() and result:
      print(summary(result, run.folder))
    code = EXIT['stopped' if result is None else result.status]
    if code:
      return code
  if errors:
    raise errors[0]
  return 0


def _ended(trained, errors):
  """Yields runs as they end; appends the error of the first failed one."""
  try:
    yield from trained
  except UserError as error:
    if distributed.is_multiprocess():
      raise  # other processes may wait for this one
    errors.append(error)


@contextlib.contextmanager
def _kept(errors, run, shown):
  """Keeps a UserError, and prints it if it is not the only one."""
  try:
    yield
  except UserError as error:
    errors.append(error)
    if shown:
      say(f'{run.folder}: {error}')


def _trained(runs, options, how, errors):
  """Yields each run with its result; finished runs come first."""
  from lra.run import train as train_lib
  left, done = [], []
  for run in runs:
    with _kept(errors, run, len(runs) > 1):
      result = finished(run, options.test)
      if result is None:
        left.append(run)
        continue
      if 'profiled' in how:
        from lra.run import profile
        profile.Profile(run.folder, how['profiled']).check(result.steps)
      if distributed.is_leader():
        print(f'{run.folder} is '
              f'{"finished" if result.finished else "validated"} already.')
      done.append((run, result))
  _warn_of_edits(left, done)
  yield from done
  if not left:
    return
  how |= {'log': options.log, 'tested': options.test,
          'announced': announced(left, options, how['recorded'])}
  if len(runs) == 1:
    yield left[0], train_lib.train(left[0], options.minutes, **how)
  else:
    at_once = 1 if distributed.is_multiprocess() else (
        options.at_once or min(map(train_lib.how_many, left)))
    yield from train_lib.train_many(
        left, at_once=at_once, max_minutes=options.minutes, **how)


def announced(runs: Sequence, options: Options, recorded: bool) -> str:
  """Returns a line that names the files that training these runs will write."""
  place = options.place
  said = 'Writes to ' + (f'{len(runs)} run directories, such as ' if (
      len(runs) > 1) else '') + str(paths.shown(runs[0].folder))
  if not options.test:
    return f'{said}; without a test there is no record.'
  if options.record_later:
    return f'{said}; once all seeds have ended, the results are recorded.'
  if not recorded:
    return f'{said}; the result is not recorded.'
  if not options.replace and all(_record_of(run, place).exists()
                                 for run in runs):
    return (f'{said}; {paths.shown(place.runs)} has a record already, which is '
            'compared with the result but not changed.')
  return (f'{said}; then records the result in {paths.shown(place.runs)}, '
          f'which changes {paths.shown(place.page)}, its pages in '
          f'{paths.shown(place.details)} and the figures in '
          f'{paths.shown(place.figures)}. --norecord prevents this.')


def _record_of(run, place):
  """Returns the path of a run's record if its settings were not searched."""
  config = run.config.to_dict()
  return place.runs / config['task'] / (
      f'{config["model"]["name"]}-{identity.run_name(config)}.json')


def finished(run, tested: bool) -> Result | None:
  """Returns the result of a run that has ended, with its test if `tested`, or
  None.

  Only the leader reads it: another machine may see a shared file later.

  Raises:
    UserError: the folder, or the result in it, belongs to another run.
  """
  def look():
    found = result_lib.read_if_there(run.folder / 'result.json')
    return found and found.fields

  fields = distributed.broadcast_from_leader(look)
  result = fields and result_lib.validate(fields)
  if not result or result.status not in (
      result_lib.FINISHED if tested else result_lib.SEARCHED):
    return None
  config, folder = run.config.to_dict(), run.folder
  check_config(folder, config)
  differ = identity.differences(config, result.config)
  if differ:
    raise UserError(
        f'{folder / "result.json"} belongs to another run (it differs in '
        f'{rows.listed(differ)}): delete it, or choose another --workdir.')
  return result


def warn_of_edits(
    results: Iterable[tuple[pathlib.Path, Result | None]]) -> None:
  """Warns about finished runs whose model file has changed since."""
  from lra.run import provenance
  provenance.warn_of_edits(
      ((folder, result.model, result.model_sha256)
       for folder, result in results if result and result.finished),
      provenance.FINISHED)


def _warn_of_edits(left, done):
  """Warns about finished and stopped runs whose model file has changed."""
  from lra.run import provenance
  if not distributed.is_leader():
    return
  warn_of_edits((run.folder, result) for run, result in done)
  provenance.warn_of_edits(
      ((run.folder, run.config.model.name, provenance.of_folder(run.folder))
       for run in left if saved(run.folder)), provenance.GOES_ON)


def _record(result, changes, options):
  """Puts a finished run on the leaderboard, or prints how to."""
  if options.records(changes or result.search):
    if result.changes is None:
      result = result.model_copy(update={'changes': changes})
    publish.publish(result, options.place, replace=options.replace)
    print(f'Records are in {options.place.results}.')
  elif options.record is None:
    why = 'its settings were searched' if result.search else (
        f'the settings differ from the protocol {result.protocol} '
        f'({rows.departures(changes, result.config)})')
    print(f'Not on the leaderboard, because {why}: --record adds it, in a '
          'table of its own.')


def _ending(results, whole, tested):
  """Returns the best setting by validation, or the mean over seeds, in words.

  With several settings the text is '' until each run has ended.
  """
  groups = choose.settings(results)
  if len(groups) == 1:
    return choose.tested(groups[0]) if tested and len(groups[0]) > 1 else ''
  if not whole or any(r.status not in result_lib.SEARCHED for r in results):
    return ''
  more = '' if tested else '; without --notest it is tested'
  return f'B{choose.text(groups)[1:]}{more}'


def remedy(config: Mapping) -> str:
  """Returns the settings to try after a run diverged."""
  clip = config['model'].get('clip_eigenvalues', True)
  return 'a smaller config.train.learning_rate' + (
      '' if clip else ' or config.model.clip_eigenvalues=True (the eigenvalues '
      'may have left the stable half-plane)')


def summary(result: Result, folder: pathlib.Path) -> str:
  """Returns the summary of a result, in a few lines."""
  lines = [f'{result.status}: {folder}']
  step = f'(checkpoint of step {result.best_step})'
  if result.status == 'diverged':
    lines.append(
        f'The loss was not finite at step {result.steps}: try '
        f'{remedy(result.config)}, in a new run directory.')
  if result.status == 'oom':
    lines.append('The device has too little memory: choose a smaller '
                 'config.train.microbatch_size or config.encoder.remat=True.')
  if result.test is None and result.status in ('ok', 'validated'):
    accuracy = getattr(result.val, 'accuracy', None)
    lines.append(f'validation accuracy {percent(accuracy)}% {step}'
                 f'{", not tested" * (result.status == "validated")}')
  if result.test:
    accuracy = getattr(result.test, 'accuracy', None)
    score = (f'loss {result.test.loss:.4f}' if accuracy is None
             else f'accuracy {accuracy:.2%}')
    lines += [f'test {score} {step}', *(
        f'  {name} tokens: accuracy {scores.accuracy:.2%}'
        for name, scores in result.longer.items()), *(
        f'  baseline {value:.2%}  {name}' for name, value in sorted(
            result.baselines.items(), key=lambda item: -item[1]))]
  if result.train_seconds:
    lines.append(f'{result.steps_per_s:.2f} steps/s, peak memory '
                 f'{result.peak_memory_bytes / 2**30:.2f} GiB on '
                 + f'{result.num_devices} x ' * (result.num_devices > 1)
                 + result.device)
  return '\n'.join(lines)
