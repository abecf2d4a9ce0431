"""The command line: its flags choose to train, evaluate, list and so on.

Exit codes: 0 done; 1 a bug of ours, with its traceback; 2 something for the
user to correct, in one sentence; 3 the run diverged; 4 the device's memory was
too small; 75 stopped early, the same command resumes; 130 ended by a second
Ctrl-C.
"""

import pathlib
import sys

from lra.cli import command, launch, options, words
from lra.core import environment
from lra.core.errors import USER_ERROR, UserError
from lra.run import describe


def run() -> None:
  """Entry point of `run_lra.py`."""
  said = sys.argv[1:2]
  try:
    sys.argv[1:] = words.flags(sys.argv[1:])
  except UserError as e:
    command.fail(str(e))
  command.run(main, _usage, options.summary(*said))


def _usage():
  """Returns the words that must follow the flags."""
  if options.CURVES.value:
    return command.Words('curves', 'run directories or records',
                         'RUN RUN ...')
  if options.COMPARE.value:
    return command.Words('compare', 'two run directories or records', 'A B')
  for flag in (options.PREDICT, options.EXPORT):
    if flag.value:
      return command.Words(flag.name, 'a run directory', 'RUN')
  return command.Words()


def main(*after: str) -> int:
  """Runs the command that the flags choose; returns the exit code.

  Args:
    *after: the words that follow the flags.
  """
  options.check()
  if options.LIST.value:
    print(listing())
    return 0
  if options.LEADERBOARD.value:
    from lra.board import publish
    html = options.HTML.value
    publish.regenerate(launch.place(), html and pathlib.Path(html))
    return 0
  if options.STUDIES.value:
    from lra.cli import launch_sweep
    launch_sweep.write_studies()
    return 0
  if options.CHECK_RECORD.value:
    return _check_record(pathlib.Path(options.CHECK_RECORD.value))
  if options.CURVES.value:
    from lra.run import curves
    curves.plot_runs(list(map(pathlib.Path, after)), options.CURVES.value)
    print(f'wrote {options.CURVES.value}')
    return 0
  if options.SWEEP.value:
    from lra.cli import launch_sweep
    return launch_sweep.run()
  if options.SUITE.value:
    from lra.cli import launch_suite
    return launch_suite.run()
  if options.EVALUATE.value or options.PREDICT.value or options.COMPARE.value:
    from lra.cli import inspection
    if not options.COMPARE.value:
      environment.check_xla_flags()
    print(_asked(inspection, [pathlib.Path(word) for word in after]))
    return 0
  if options.EXPORT.value:
    from lra.cli import exporting
    environment.check_xla_flags()
    print(exporting.export(pathlib.Path(options.EXPORT.value),
                           pathlib.Path(after[0]), options.PUSH.value))
    return 0
  if options.DISTRIBUTED.value:
    from lra.core import distributed
    distributed.begin(options.COORDINATOR.value, options.NUM_PROCESSES.value,
                      options.PROCESS_ID.value)
    return distributed.ending(_train)
  return _train()


def _check_record(path):
  """Prints the checks of a record; returns the exit code."""
  from lra.board import submission
  if not path.is_file():
    raise UserError(f'--check_record={path} is no file: give a record, such as '
                    'lra/results/runs/<task>/<model>-<config hash>-s0.json.')
  checks = submission.check(path, pathlib.Path(options.RESULTS_DIR.value))
  for one in checks:
    if one.passed:
      print(f'ok    {one.name:9} {one.what}', flush=True)
  faults = [one for one in checks if not one.passed]
  for one in faults:
    print(f'error: {one.name}: {one.what}', file=sys.stderr)
  return USER_ERROR if faults else 0


def _train():
  """Trains --config; returns the exit code."""
  chosen = command.experiment(options.WORKDIR.value)
  if chosen is None:
    raise UserError(
        'Nothing to do: give --config=configs/<model>.py:<task>, '
        '--sweep=FILE, --suite=NAME, --leaderboard or --list.')
  if options.PRINT_CONFIG.value:
    print(describe.text(chosen.config))
    return 0
  environment.check_xla_flags()
  command.use_compile_cache()
  if options.COMPILE_ONLY.value:
    from lra.many import ahead
    ahead.compile_steps(chosen)
    return 0
  if options.TRIAL.value:
    from lra.cli import launch_trial
    return launch_trial.run(chosen)
  if options.SEARCH.value:
    from lra.cli import launch_search
    return launch_search.run(chosen)
  return launch.train(chosen)


def _asked(inspection, paths):
  """Returns the output of --evaluate, --predict or --compare."""
  if options.QUANTISE.value:
    from lra.share import quantised
    return quantised.measure(pathlib.Path(options.EVALUATE.value)).text()
  if options.EVALUATE.value:
    return inspection.evaluate(pathlib.Path(options.EVALUATE.value),
                               options.LENGTHS.value)
  if options.COMPARE.value:
    return inspection.compare(*paths)
  return inspection.predict(pathlib.Path(options.PREDICT.value), *paths)


def listing() -> str:
  """Returns a line for each model, by family, and one for each task.

  Parameters and state sizes are those under the default protocol of a task.
  """
  from lra.board import catalogue
  from lra.cli import parameters
  from lra.configs import base
  from lra.core import tasks
  counts, problems = parameters.table()
  first = parameters.TASKS[0]
  protocols = {task: [name for name, known in base.PROTOCOLS.items()
                      if task in known] for task in tasks.TASKS}
  width = max(map(len, tasks.TASKS))
  lines = [
      f'{t.name:{width}} {t.seq_len:6} tokens{" x 2" if t.dual else "":5}'
      f'{t.num_classes:4} classes  {t.title:33}  {", ".join(protocols[t.name])}'
      for t in tasks.TASKS.values()]
  return '\n'.join([
      f'models; their parameters on {first} (protocol {protocols[first][0]}), '
      f'how many times the {catalogue.REFERENCE}\'s these are, and the numbers '
      'that a layer keeps from token to token',
      catalogue.listing(
          {name: {first: count[first]} for name, count in counts.items()},
          states=parameters.state_sizes()) + '\n'.join([
          *problems, 'tasks, and their protocols; the first is the default',
          *lines])])
