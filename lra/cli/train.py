"""Trains one run: the flags that follow `run_lra.py` without a word.

With --seeds, --grid or --search it trains several runs of one config.
"""

import pathlib
import sys
import textwrap
from collections.abc import Callable, Sequence

from absl import flags
from ml_collections import config_flags

from lra.cli import arguments, board, command, options
from lra.core import environment, paths
from lra.core.errors import Impossible, UserError
from lra.core.terminal import say
from lra.run import check, loader
from lra.schema import grid, seeds
from lra.schema.fields import FIELDS


def summary() -> str:
  """Returns the flags of training, with their meaning."""
  lines = [f'usage: {" ".join(paths.program())} --config=FILE:TASK FLAGS']
  for name in ('config', *sorted(options.names() - {'config'})):
    text = ' '.join(f'--{name}: {flags.FLAGS[name].help}'.split())
    lines.append(textwrap.fill(
        text, 80, initial_indent='  ', subsequent_indent='      '))
  return '\n'.join(lines)


def parse(argv: Sequence[str]) -> None:
  """Parses the flags of training; a UserError names a flag or field that is
  wrong.
  """
  try:
    rest = flags.FLAGS([sys.argv[0], *argv])
  except UserError:
    raise
  except flags.UnrecognizedFlagError as e:
    text = loader.one_line(e)
    if text.endswith("'"):  # absl names no similar flag
      if e.flagname.startswith('config.'):
        raise UserError(arguments.changes_nothing(e.flagname)) from e
      field = loader.likeliest(e.flagname, FIELDS)
      text += field and f': the field is --config.{field}.'
    raise UserError(arguments.elsewhere(e.flagname, 'train') or text) from e
  except Exception as e:  # from absl, or from Python's parser of a value
    raise UserError(loader.one_line(e)) from e
  for name in options.names():
    value = flags.FLAGS[name].value
    if isinstance(value, str) and name != 'coordinator':
      paths.local(value, f'--{name}')
  if len(rest) > 1:
    raise UserError(f'Unknown argument {rest[1]!r}: flags begin with --.')
  options.check()


def main(argv: Sequence[str]) -> int:
  """Trains --config; returns the exit code."""
  parse(argv)
  if options.DISTRIBUTED.value:
    from lra.core import distributed
    distributed.begin(options.COORDINATOR.value, options.NUM_PROCESSES.value,
                      options.PROCESS_ID.value)
    return distributed.ending(_train)
  return _train()


def _train():
  chosen = _experiment()
  if options.PRINT_CONFIG.value:
    print(check.described(chosen.config, chosen.marks))
    return 0
  environment.check_xla_flags()
  command.use_compile_cache(command.CACHE.value)
  if options.COMPILE_ONLY.value:
    from lra.run import program, rundir
    began = rundir.environment(chosen.folder)  # its dtype and sizes are kept
    made, _ = program.make(
        chosen, dtype=began.get('dtype'), before=began).fit_train()
    made.fit_eval()
    return 0
  if options.TRIAL.value:
    return _trial(chosen)
  from lra.many import execute
  how = execute.Options(
      place=board.place(pathlib.Path(options.RESULTS_DIR.value), (
          options.PAGE.value and pathlib.Path(options.PAGE.value))),
      record=options.RECORD.value, replace=options.REPLACE.value,
      deadline=execute.deadline(options.MAX_MINUTES.value),
      log=options.LOG.value, at_once=options.AT_ONCE.value,
      test=options.TEST.value, profile=options.PROFILE.value)
  if options.SEARCH.value:
    from lra.many import search
    space = search.space(options.SPACE.value)
    if chosen.config.train.include_val:
      raise UserError('--search chooses by validation: leave out '
                      'train.include_val=True.')
    return search.train(_maker(chosen, '--space'), space, options.TRIALS.value,
                        _seeds(chosen), how)
  return execute.train(_runs(chosen), how)


def _experiment():
  """Returns the experiment of --config."""
  if command.CONFIG.value is None:
    given = [f'--{name}' for name in sorted(options.names())
             if flags.FLAGS[name].present]
    raise UserError(f'Nothing to do{" with " * bool(given)}{" ".join(given)}: '
                    'give --config=configs/<model>.py:<task>, or a word; '
                    '--help lists both.')
  from lra.run import experiment  # imports JAX
  return experiment.resolve(
      command.CONFIG.value, folder=options.WORKDIR.value,
      made_by=config_flags.get_config_filename(flags.FLAGS['config']))


def _trial(experiment):
  """Makes a few steps and prints the estimate; returns the exit code."""
  import jax

  from lra.core import machine
  from lra.many.execute import EXIT, remedy
  from lra.run import trial
  from lra.run.trainer import Diverged
  try:
    made = trial.measure(experiment)
  except Diverged:
    print('diverged: the loss was not finite: try '
          f'{remedy(experiment.config)}.')
    return EXIT['diverged']
  except jax.errors.JaxRuntimeError as error:
    if not machine.out_of_memory(error):
      raise
    print('oom: the device has too little memory: choose a smaller '
          'config.train.microbatch_size or config.encoder.remat=True.')
    return EXIT['oom']
  print(f'trial of {experiment.config.model.name} on {experiment.task.name}: '
        f'{made.tried} of {made.steps:,} steps; nothing is recorded or kept.\n'
        f'{made}')
  if experiment.task.longer:
    print('The tests of other lengths after the test are not counted.')
  return 0


def _runs(experiment):
  """Returns the experiment of each run that --seeds and --grid ask for."""
  if options.SEEDS.value is None and not options.GRID.value:
    return [experiment]
  numbers = _seeds(experiment)
  lines = [grid.check(grid.words(line)) for line in options.GRID.value]
  if not all(lines):
    raise UserError('--grid has no field: write one such as '
                    '--grid=train.learning_rate=[0.02,0.05].')
  told = grid.check_count(
      (sum(map(grid.count, lines)) or 1) * len(numbers), ' and '.join(
          name for name, given in (
              ('--grid', lines), ('--seeds', len(numbers) > 1)) if given))
  if told:
    from lra.core import distributed
    if distributed.is_leader():
      say(told)
  made, runs = _maker(experiment, '--grid'), {}
  changes = [some for line in lines for some in grid.combinations(line)]
  for one in map(made, changes) if lines else [experiment]:
    for seed in numbers:
      run = one.with_seed(seed)
      if run.folder in runs:
        raise UserError(f'--grid makes one run twice, {run.folder}: name each '
                        'value once.')
      runs[run.folder] = run
  return list(runs.values())


def _seeds(experiment):
  """Returns the numbers of --seeds, by default that of the experiment."""
  if options.SEEDS.value is None:
    return [experiment.config.seed]
  if 'seed' in config_flags.get_override_values(flags.FLAGS['config']):
    raise UserError('--seeds and --config.seed both set the seed: leave one '
                    'out.')
  return seeds.parse(options.SEEDS.value)


def _maker(experiment, flag: str) -> Callable:
  """Returns a function that makes the experiment of --config with changes.

  The `flag` has the changes, words such as `train.steps=5`.
  """
  from lra.run.experiment import resolve
  asked = config_flags.get_override_values(flags.FLAGS['config'])
  given = [f'--config={experiment.made_by}', *(
      f'--config.{name}={value if isinstance(value, str) else repr(value)}'
      for name, value in asked.items())]

  def made(changes):
    fields = [change.partition('=')[0] for change in changes]
    if 'seed' in fields:
      raise UserError(f'{flag} does not take seed: use --seeds=0-4.')
    for name in filter(asked.__contains__, fields):
      raise UserError(f'{flag} and --config.{name} both set {name}: leave '
                      'out one of them.')
    config = None
    try:
      config = loader.made_by(
          [*given, *(f'--config.{change}' for change in changes)])
      return resolve(config, made_by=experiment.made_by)
    except UserError as e:
      said = ' '.join(str(e).split())
      raise (Impossible if config else UserError)(
          f'{flag}: {said}{grid.hint(changes, said)}') from e

  return made
