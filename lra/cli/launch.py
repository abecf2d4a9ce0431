"""Runs the experiment given by --config, --seeds and --grid."""

import contextlib
import pathlib
import time
from collections.abc import Iterable

from absl import flags
from ml_collections import config_flags

from lra.cli import announce, options
from lra.core import distributed, signals
from lra.core import paths as place_lib
from lra.core.errors import UserError
from lra.core.formats import percent
from lra.core.terminal import say
from lra.many import best
from lra.run import loader, writers
from lra.run.rundir import check_config
from lra.schema import grid, identity, seeds
from lra.schema import result as result_lib
from lra.schema.search import Search

EXIT = {'ok': 0, 'diverged': 3, 'oom': 4, 'stopped': signals.STOPPED,
        'validated': 0}


def train(experiment) -> int:
  """Trains to the end, a stop or a failure; returns the exit code.

  With --seeds or --grid it returns the code of a stop if any run stopped, else
  the largest code.

  Raises:
    UserError: something must be corrected. With several runs, the first error
      is raised once all have ended.
  """
  return train_all(_runs(experiment))


def train_all(runs: list, search: Search | None = None) -> int:
  """Trains several runs as `train` does.

  Args:
    runs: the experiments.
    search: the search that chose their settings, for their records, which are
      made only if the flags ask for them.
  """
  from lra.board import publish
  writers.check(options.LOG.value)
  how = {'max_minutes': options.MAX_MINUTES.value, 'log': options.LOG.value,
         'tested': options.TEST.value}
  if options.PROFILE.value is not None:
    from lra.run import profile
    how['profiled'] = profile.steps(
        options.PROFILE.value, runs[0].config.train.steps)
  _warn_of_form({run.config.model.name for run in runs})
  recorded = {run.task.name for run in runs
              if to_record(run.changes or search)}
  if recorded:
    distributed.broadcast_from_leader(lambda: publish.check(place(), recorded))
  how['recorded'] = bool(recorded)
  code = train_sources(runs, how)
  if code:
    return code
  compared = _several(runs) or not options.SHOW_TEST.value
  codes, results, errors = [], [], []
  for run, result in _ended(_trained(runs, how, errors), errors):
    folder = run.folder
    codes.append(EXIT['stopped' if result is None else result.status])
    if codes[-1] == EXIT['oom'] and distributed.is_multiprocess():
      print(summary(result, folder))
      distributed.leave(codes[-1])  # other processes may still run
    if not distributed.is_leader():
      continue
    if result is None:
      print(f'not begun: {folder}')
      continue
    untested = result.model_copy(update={'test': None, 'longer': {}})
    # An earlier command may have tested the run.
    results.append(result if options.TEST.value else untested)
    print(summary(untested if compared else results[-1], folder))
    if result.finished and options.TEST.value:
      with _kept(errors, folder):
        _record(result.model_copy(update={'search': search}), run.changes,
                to_record(run.changes or search))
  if distributed.is_leader():
    ending = options.SHOW_TEST.value and _ending(runs, results)
    if ending:
      print(ending)
  distributed.barrier()  # the leader may have waited for the page
  # The same command resumes stopped runs, and then the error is raised again.
  if errors and EXIT['stopped'] not in codes:
    raise errors[0]
  return max(codes, key=lambda code: (code == EXIT['stopped'], code))


def train_sources(runs, how):
  """Trains the unfinished runs that others start from; returns an exit code.

  They are not tested and have no records.

  Args:
    runs: experiments.
    how: `max_minutes`, which is reduced by the time taken, and `log`; see
      `train.train`.
  """
  sources = {}
  for run in runs:
    made = run.source
    if made and not (run.folder / 'checkpoints').exists():
      sources[made.folder] = made
  if not sources:
    return 0
  began = time.monotonic()
  code, errors = train_sources(list(sources.values()), how), []
  if code:
    return code
  for run, result in _ended(_trained(list(sources.values()), {
      'max_minutes': how['max_minutes'], 'log': how['log'], 'tested': False,
      'recorded': False}, errors), errors):
    code = EXIT['stopped' if result is None else result.status]
    if distributed.is_leader() and result:
      print(summary(result, run.folder))
    if code:
      return code
  if errors:
    raise errors[0]
  if how['max_minutes'] is not None:
    how['max_minutes'] = max(
        how['max_minutes'] - (time.monotonic() - began) / 60, 0)
  return 0


def minutes_left(began: float) -> float | None:
  """Returns the minutes left of --max_minutes; None without a limit.

  Args:
    began: `time.monotonic()` at the begin of the command.
  """
  minutes = options.MAX_MINUTES.value
  return minutes and max(minutes - (time.monotonic() - began) / 60, 0)


def _ended(trained, errors):
  """Yields runs as they end; appends the error of the first failed one."""
  try:
    yield from trained
  except UserError as error:
    if distributed.is_multiprocess():
      raise  # other processes may wait for this one
    errors.append(error)


def _warn_of_form(names):
  """Reports models whose files do not have the form that `list` reads."""
  from lra.board import catalogue
  for problem in filter(None, map(catalogue.problem, sorted(names))):
    if distributed.is_leader():
      say(f'{problem} Until then `list` leaves the model out.')


def to_record(changes) -> bool:
  """Returns whether the flags ask for a record of a run with these changes."""
  if options.RECORD.value is not None:
    return options.RECORD.value
  return options.REPLACE.value or not changes


def is_recorded(result: result_lib.Result) -> bool:
  """Returns whether nothing is left to publish of a finished run."""
  from lra.board import publish
  return not to_record(result.changes) or publish.done(
      result, place(), replace=options.REPLACE.value)


def _runs(experiment):
  """Returns the experiment of each run that the flags ask for."""
  asked = config_flags.get_override_values(flags.FLAGS['config'])
  if options.SEEDS.value is None and not options.GRID.value:
    return [experiment]
  numbers = seeds_of(experiment, asked)
  lines = [grid.check(grid.words(line)) for line in options.GRID.value]
  if not all(lines):
    raise UserError('--grid has no field: write one such as '
                    '--grid=train.learning_rate=[0.02,0.05].')
  configs = sum(map(grid.count, lines)) or 1
  told = grid.check_count(configs * len(numbers), ' and '.join(
      name for name, given in (('--grid', lines), ('--seeds', len(numbers) > 1))
      if given))
  if told and distributed.is_leader():
    say(told)
  runs = {}
  for made in of_grid(experiment, asked, lines):
    for seed in numbers:
      run = made.with_seed(seed)
      if run.folder in runs:
        raise UserError(f'--grid makes one run twice, {run.folder}: name each '
                        'value once.')
      runs[run.folder] = run
  return list(runs.values())


def seeds_of(experiment, asked: dict) -> list[int]:
  """Returns the numbers of --seeds, by default that of the experiment.

  Raises:
    UserError: they are wrong, or `asked` sets a seed too; see `of_grid`.
  """
  if options.SEEDS.value is None:
    return [experiment.config.seed]
  if 'seed' in asked:
    raise UserError('--seeds and --config.seed both set the seed: leave one '
                    'out.')
  return seeds.parse(options.SEEDS.value)


def of_grid(experiment, asked: dict, lines: Iterable[list[str]],
            flag: str = '--grid') -> list:
  """Returns the experiments of --grid, with the changes of `--config.` flags.

  Args:
    experiment: the experiment of --config.
    asked: {field: value} of the `--config.` flags.
    lines: the words of each --grid.
    flag: the flag that has these words.

  Raises:
    UserError: they make no config.
  """
  from lra.run.experiment import resolve
  given = [f'--config={experiment.made_by}', *(
      f'--config.{name}={value if isinstance(value, str) else repr(value)}'
      for name, value in asked.items())]
  made = []
  for words in lines:
    for changes in grid.combinations(words):
      names = [change.partition('=')[0] for change in changes]
      if 'seed' in names:
        raise UserError(f'{flag} does not take seed: use --seeds=0-4.')
      for name in filter(asked.__contains__, names):
        raise UserError(f'{flag} and --config.{name} both set {name}: leave '
                        'out one of them.')
      try:
        made.append(resolve(loader.made_by(
            [*given, *(f'--config.{change}' for change in changes)]),
                            made_by=experiment.made_by))
      except (flags.Error, ValueError, UserError) as e:
        said = ' '.join(str(e).split())
        raise UserError(f'{flag}: {said}{grid.hint(changes, said)}') from e
  return made or [experiment]


@contextlib.contextmanager
def _kept(errors, folder):
  """Context that keeps a UserError; it is printed if there are several runs."""
  try:
    yield
  except UserError as error:
    errors.append(error)
    if options.SEEDS.value is not None or options.GRID.value:
      say(f'{folder}: {error}')


def _trained(runs, how, errors):
  """Yields each run with its result; runs that are finished already come first.
  """
  left, done = [], []
  ended = result_lib.FINISHED if how['tested'] else result_lib.SEARCHED
  for run in runs:
    folder = run.folder
    with _kept(errors, folder):
      result = result_in(folder)
      if result is None or result.status not in ended:
        left.append(run)
      else:
        check_finished(folder, run.config.to_dict(), result)
        if 'profiled' in how:
          from lra.run import profile
          profile.check(how['profiled'], result.steps, folder)
        if distributed.is_leader():
          print(f'{folder} is '
                f'{"finished" if result.finished else "validated"} already.')
        done.append((run, result))
  _warn_of_edits(left, done)
  yield from done
  if not left:
    return
  how['announced'] = announce.text(
      left, place(), tested=how['tested'], recorded=how['recorded'],
      replace=options.REPLACE.value)
  from lra.run import train as train_lib
  if len(runs) == 1:
    yield left[0], train_lib.train(left[0], **how)
  else:
    at_once = 1 if distributed.is_multiprocess() else (
        options.AT_ONCE.value or
        min(map(train_lib.how_many, left)))
    yield from train_lib.train_many(left, at_once=at_once, **how)


def warn_of_edits(
    results: Iterable[tuple[pathlib.Path, result_lib.Result | None]]) -> None:
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
       for run in left
       if any(run.folder.glob('checkpoints/last/[0-9]*'))), provenance.GOES_ON)


def result_in(folder):
  """Returns the result in a run directory, None if there is none.

  Only the leader reads it: in a shared folder another machine may see the file
  later.
  """
  def look():
    found = result_lib.read_if_there(folder / 'result.json')
    return found and found.fields

  fields = distributed.broadcast_from_leader(look)
  return fields and result_lib.validate(fields)


def _record(result, changes, recorded):
  """Puts a finished run on the leaderboard, or prints how to."""
  from lra.board import publish, rows
  if recorded:
    if result.changes is None:
      result = result.model_copy(update={'changes': changes})
    publish.publish(result, place(), replace=options.REPLACE.value)
    print(f'Records are in {options.RESULTS_DIR.value}.')
  elif options.RECORD.value is None:
    why = 'its settings were searched' if result.search else (
        f'the settings differ from the protocol {result.protocol} '
        f'({rows.departures(changes, result.config)})')
    print(f'Not on the leaderboard, because {why}: --record adds it, in a '
          'table of its own.')


def _ending(runs, results):
  """Returns the best setting by validation, or the mean over seeds, in words.

  With several settings the result is '' until each run has ended.

  Args:
    runs: the experiments.
    results: the results of those that have one.
  """
  groups = best.settings(results)
  if not _several(runs):
    scored = groups[0] if groups and options.TEST.value else []
    return best.tested(scored) if len(scored) > 1 else ''
  if len(results) < len(runs) or any(
      result.status not in result_lib.SEARCHED for result in results):
    return ''
  more = '' if options.TEST.value else '; without --notest it is tested'
  return f'B{best.text(groups)[1:]}{more}'


def _several(runs):
  """Returns whether runs have several settings, which are to be compared."""
  return len({identity.config_hash(run.config.to_dict()) for run in runs}) > 1


def check_finished(folder: pathlib.Path, config: dict,
                   result: result_lib.Result) -> None:
  """Checks that a finished run is this one; draws its curves if needed.

  Raises:
    UserError: the folder, or the result in it, belongs to another run.
  """
  from lra.board import rows
  from lra.run import curves
  check_config(folder, config)
  differ = identity.differences(config, result.config)
  if differ:
    raise UserError(
        f'{folder / "result.json"} belongs to another run (it differs in '
        f'{rows.listed(differ)}): delete it, or choose another --workdir.')
  metrics, drawn = folder / 'metrics.jsonl', folder / 'curves.png'
  if metrics.exists() and not drawn.exists():  # killed before drawing
    try:
      curves.plot(metrics, drawn, result.baselines)
    except UserError as e:  # the result is valid without curves
      say(f'No curves: {e}')


def summary(result: result_lib.Result, folder: pathlib.Path) -> str:
  """Returns the summary of a result, in a few lines."""
  lines = [f'{result.status}: {folder}']
  if result.status == 'diverged':
    lines.append(
        f'The loss was not finite at step {result.steps}: try a smaller '
        'config.train.learning_rate, in a new run directory.')
  if result.status == 'oom':
    lines.append('The device has too little memory: choose a smaller '
                 'config.train.microbatch_size or config.encoder.remat=True.')
  if result.test is None and result.status in ('ok', 'validated'):
    accuracy = getattr(result.val, 'accuracy', None)
    lines.append(f'validation accuracy {percent(accuracy)}% (checkpoint of '
                 f'step {result.best_step})'
                 f'{", not tested" * (result.status == "validated")}')
  if result.test:
    accuracy = getattr(result.test, 'accuracy', None)
    score = (f'loss {result.test.loss:.4f}' if accuracy is None
             else f'accuracy {accuracy:.2%}')
    lines.append(f'test {score} (checkpoint of step {result.best_step})')
    for name, scores in result.longer.items():
      lines.append(f'  {name} tokens: accuracy {scores.accuracy:.2%}')
    for name, value in sorted(
        result.baselines.items(), key=lambda item: -item[1]):
      lines.append(f'  baseline {value:.2%}  {name}')
  if result.train_seconds:
    lines.append(f'{result.steps_per_s:.2f} steps/s, peak memory '
                 f'{result.peak_memory_bytes / 2**30:.2f} GiB on '
                 f'{result.device}')
  return '\n'.join(lines)


def place():
  """Returns the place of the leaderboard that the flags name."""
  from lra.board import publish
  from lra.cli import repeat
  results = pathlib.Path(options.RESULTS_DIR.value)
  page = options.PAGE.value or place_lib.page_of(results)
  return publish.Place(results, pathlib.Path(page), repeat.command)
