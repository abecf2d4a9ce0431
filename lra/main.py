"""The command line: flags -> train, evaluate, leaderboard or list.

Exit codes: 0 done; 1 a bug of ours, with its traceback; 2 something for the
user to mend, in one sentence; 3 the run diverged; 4 the device's memory was
too small; 75 stopped early, the same command continues; 130 ended by a second
Ctrl-C.
"""

import math
import pathlib

from absl import flags
from ml_collections import config_flags

from lra import command, identity, place
from lra.errors import UserError
from lra.report import result as result_lib
from lra.terminal import say
from lra.training import writers
from lra.training.run import check_config

EXIT = {'ok': 0, 'diverged': 3, 'oom': 4, 'stopped': 75}

WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Run directory; by default runs/<task>/<model>/'
    '<config hash>-s<seed>.')
MAX_MINUTES = flags.DEFINE_float(
    'max_minutes', None, 'Checkpoint and stop after so many minutes.',
    lower_bound=0)
RECORD = flags.DEFINE_boolean(
    'record', None, 'Put a finished run on the leaderboard: copy its result '
    'to --results_dir and regenerate leaderboard.md. Done by default where the '
    'settings are those of the protocol.')
REPLACE = flags.DEFINE_boolean(
    'replace', False, 'Record a run in the place of an earlier record of it.')
RESULTS_DIR = flags.DEFINE_string(
    'results_dir', str(place.results()), 'Where the leaderboard\'s records '
    'are.')
PAGE = flags.DEFINE_string(
    'page', str(place.page()), 'The leaderboard to write.')
LEADERBOARD = flags.DEFINE_boolean(
    'leaderboard', False, 'Regenerate the leaderboard from its records.')
HTML = flags.DEFINE_string(
    'html', None, 'With --leaderboard: also write it as one page for browsers, '
    '<html>/index.html.')
CURVES = flags.DEFINE_string(
    'curves', None, 'Draw the validation accuracies of run directories, seeds '
    'of one config as one line: --curves=FIGURE.png RUN RUN ...')
SWEEP = flags.DEFINE_string(
    'sweep', None, 'Run the configs and seeds of a file, such as '
    'configs/sweeps/mini.txt, one after another; see lra/sweep.py.')
SHARD = flags.DEFINE_string(
    'shard', None, 'With --sweep: only a part of its runs, such as 2/5 for the '
    'second of five machines.')
SEEDS = flags.DEFINE_string(
    'seeds', None, 'Seeds to train, in one process: 0-4 or 0,3.')
AT_ONCE = flags.DEFINE_integer(
    'at_once', None, 'With --seeds: how many train at the same time; by '
    'default of mini tasks four on each core of a processor, else one.',
    lower_bound=1)
DRY_RUN = flags.DEFINE_boolean(
    'dry_run', False, 'With --sweep: only say what there is to run.')
EVALUATE = flags.DEFINE_string(
    'evaluate', None, 'Score the model of a run directory on its test split.')
PREDICT = flags.DEFINE_string(
    'predict', None, 'Classes of the examples in a file, one a line (of pairs '
    'of texts a tab between them, of images their files): '
    '--predict=FILE RUN.')
COMPARE = flags.DEFINE_boolean(
    'compare', False, 'What differs between two runs, directories or records: '
    '--compare A B.')
LOG = flags.DEFINE_list(
    'log', [], 'What the run logs to besides metrics.jsonl, in its directory: '
    'csv, tensorboard, wandb.')
PROFILE = flags.DEFINE_string(
    'profile', None, 'Trace the updates FIRST:LAST, such as 20:30, into the '
    'run directory\'s profile/.')
LIST = flags.DEFINE_boolean('list', False, 'List models and tasks.')
flags.register_validator(
    'max_minutes', lambda minutes: minutes is None or math.isfinite(minutes),
    'it must be a finite number of at least 0')
for _flag, _needed in (('dry_run', 'sweep'), ('shard', 'sweep'),
                       ('at_once', 'seeds'), ('seeds', 'config'),
                       ('html', 'leaderboard')):
  flags.register_multi_flags_validator(
      [_flag, _needed], lambda values, flag=_flag, needed=_needed: (
          values[needed] or not values[flag]),
      f'--{_flag} needs --{_needed}')
flags.register_multi_flags_validator(
    ['seeds', 'workdir'], lambda values: None in values.values(),
    '--seeds makes a run directory for each: leave out --workdir')
for _flag in ('sweep', 'seeds'):
  flags.register_multi_flags_validator(
      ['profile', _flag], lambda values: None in values.values(),
      f'--profile is of one run, not of --{_flag}')
flags.register_validator(
    'html', lambda folder: folder != '', 'it must name a folder')


def run() -> None:
  """Entry point of `run_lra.py`."""
  command.run(main, _usage)


def _usage():
  """The words that must follow the flags."""
  if CURVES.value:
    return 'RUN ...'
  return 'A B' if COMPARE.value else 'RUN' if PREDICT.value else ''


def main(*words: str) -> int:
  """Does what the flags ask; returns the exit code.

  Args:
    *words: what follows the flags.
  """
  if LIST.value:
    print(listing())
    return 0
  if LEADERBOARD.value:
    from lra import repeat
    from lra.report import publish
    publish.regenerate(
        _place(), pathlib.Path(HTML.value) if HTML.value else None,
        repeat.command)
    return 0
  if CURVES.value:
    from lra.report import curve_set
    curve_set.plot([pathlib.Path(word) for word in words], CURVES.value)
    print(f'wrote {CURVES.value}')
    return 0
  if SWEEP.value:
    return run_sweep()
  if EVALUATE.value or PREDICT.value or COMPARE.value:
    from lra import inspection
    print(_asked(inspection, [pathlib.Path(word) for word in words]))
    return 0
  chosen = command.config()
  if chosen is None:
    raise UserError(
        'Nothing to do: give --config=configs/<model>.py:<task>, '
        '--sweep=FILE, --leaderboard or --list.')
  command.use_compile_cache()
  return train(chosen)


def _asked(inspection, paths):
  """What --evaluate, --predict or --compare ask."""
  if EVALUATE.value:
    return inspection.evaluate(pathlib.Path(EVALUATE.value))
  if COMPARE.value:
    return inspection.compare(*paths)
  return inspection.predict(pathlib.Path(PREDICT.value), *paths)


def run_sweep() -> int:
  """Runs or describes --sweep; 0 once every run of it is finished."""
  from lra import sweep
  writers.check(LOG.value)
  entries = sweep.read(place.found(SWEEP.value))
  if SHARD.value:
    entries = sweep.shard(entries, SHARD.value)
  if DRY_RUN.value:
    print(sweep.summary(entries))
    return 0
  extra = tuple(
      flags.FLAGS[name].serialize() for name in (
          'record', 'replace', 'results_dir', 'page', 'compile_cache', 'log')
      if flags.FLAGS[name].value not in (None, []))
  done = sweep.run(entries, extra=extra, max_minutes=MAX_MINUTES.value,
                   recorded=_recorded)
  return 0 if done else EXIT['stopped']


def _recorded(result):
  """Whether nothing is left to publish of a finished run."""
  from lra.report import publish
  wanted = not result.changes if RECORD.value is None else RECORD.value
  return not wanted or publish.done(result, _place())


def listing() -> str:
  """Models, by family, with their parameters on each task; and tasks."""
  from lra import tasks
  from lra.costs import parameters
  from lra.report import catalogue
  counts, problems = parameters.table()
  lines = [
      f'{t.name:20}{t.seq_len:5} tokens{" x 2" if t.dual else "":5}'
      f'{t.num_classes:3} classes' for t in tasks.TASKS.values()]
  return catalogue.listing(counts) + '\n'.join(
      [*problems, 'tasks', *lines])


def train(config) -> int:
  """Trains to the end, a stop or a failure; returns the exit code.

  With --seeds that of all runs: of a stop, else of the first that failed.
  """
  from lra import protocol
  from lra.report import publish
  from lra.training import provenance
  writers.check(LOG.value)
  options = {'max_minutes': MAX_MINUTES.value, 'log': LOG.value}
  if PROFILE.value is not None:
    from lra.training import profile
    options['profiled'] = profile.steps(PROFILE.value, config.train.steps)
  made_by = config_flags.get_config_filename(flags.FLAGS['config'])
  changes = protocol.changes(config.to_dict(), made_by)
  recorded = RECORD.value
  if recorded is None:
    recorded = REPLACE.value or not changes
  if recorded:
    publish.check(_place())
  provenance.begin(provenance.Command(protocol.file_of(made_by), changes))
  codes = []
  for (_, folder), result in _trained(_runs(config), options):
    codes.append(EXIT['stopped' if result is None else result.status])
    if result:
      print(summary(result, folder))
      if result.finished:
        _record(result, changes, recorded)
  return max(codes, key=lambda code: (code == EXIT['stopped'], code))


def _runs(config):
  """The (config, folder) of each seed that is asked for."""
  if SEEDS.value is None:
    values = config.to_dict()
    return [(config, pathlib.Path(
        WORKDIR.value or identity.run_folder(values)))]
  if 'seed' in config_flags.get_override_values(flags.FLAGS['config']):
    raise UserError('--seeds and --config.seed say both which seed to run: '
                    'leave one out.')
  from lra import seeds
  runs = []
  for seed in seeds.parse(SEEDS.value):
    one = config.copy_and_resolve_references()
    one.seed = seed
    runs.append((one, identity.run_folder(one.to_dict())))
  return runs


def _trained(runs, options):
  """Each run with its result: those that are finished already come first."""
  left = []
  for config, folder in runs:
    result = result_lib.read_if_there(folder / 'result.json')
    if result is None or not result.finished:
      left.append((config, folder))
    else:
      check_finished(folder, config.to_dict(), result)
      print(f'{folder} is finished already.')
      yield (config, folder), result
  if not left:
    return
  from lra.training import together
  from lra.training import train as train_lib
  if len(left) == 1:
    yield left[0], train_lib.train(*left[0], **options)
  else:
    at_once = AT_ONCE.value or together.how_many(left[0][0])
    yield from together.train_together(left, at_once=at_once, **options)


def _record(result, changes, recorded):
  """Puts a finished run on the leaderboard, or says how to."""
  from lra.report import publish, rows
  if recorded:
    if result.changes is None:
      result = result.model_copy(update={'changes': changes})
    publish.publish(result, _place(), replace=REPLACE.value)
    print(f'Records are in {RESULTS_DIR.value}.')
  elif RECORD.value is None:
    print(f'Not on the leaderboard, since the settings are not those of the '
          f'protocol {result.protocol} '
          f'({rows.departures(changes, result.config)}): '
          '--record adds it, in a table of its own.')


def check_finished(folder: pathlib.Path, config: dict,
                   result: result_lib.Result) -> None:
  """Makes sure that a finished run is this one, and that its curves are drawn.

  Raises:
    UserError: the folder, or the result in it, is of another run.
  """
  from lra.report import curves, rows
  check_config(folder, config)
  differ = identity.differences(config, result.config)
  if differ:
    raise UserError(
        f'{folder / "result.json"} is the result of another run (it differs in '
        f'{rows.listed(differ)}): delete it, or choose another --workdir.')
  metrics, drawn = folder / 'metrics.jsonl', folder / 'curves.png'
  if metrics.exists() and not drawn.exists():  # killed in between
    try:
      curves.plot(metrics, drawn, result.floors)
    except UserError as e:  # the result is sound without them
      say(f'No curves: {e}')


def _place():
  """Where the flags want the leaderboard."""
  from lra.report import publish
  return publish.Place(
      pathlib.Path(RESULTS_DIR.value), pathlib.Path(PAGE.value))


def summary(result: result_lib.Result, folder: pathlib.Path) -> str:
  """What a user wants to know of a result, in a few lines."""
  lines = [f'{result.status}: {folder}']
  if result.status == 'diverged':
    lines.append(
        f'The loss was not finite by step {result.steps}: try a smaller '
        'config.train.learning_rate, in a new run directory.')
  if result.status == 'oom':
    lines.append('The device has too little memory: choose a smaller '
                 'config.train.microbatch_size or config.encoder.remat=True.')
  if result.test:
    accuracy = getattr(result.test, 'accuracy', None)
    score = (f'loss {result.test.loss:.4f}' if accuracy is None
             else f'accuracy {accuracy:.2%}')
    lines.append(f'test {score} (checkpoint of step {result.best_step})')
    for name, value in sorted(
        result.floors.items(), key=lambda item: -item[1]):
      lines.append(f'  floor {value:.2%}  {name}')
  if result.train_seconds:
    lines.append(f'{result.steps_per_s:.2f} steps/s, peak memory '
                 f'{result.peak_memory_bytes / 2**30:.2f} GiB on '
                 f'{result.device}')
  return '\n'.join(lines)
