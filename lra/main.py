"""The command line: flags -> train, evaluate, leaderboard or list.

Exit codes: 0 done; 1 a bug of ours, with its traceback; 2 something for the
user to mend, in one sentence; 3 the run diverged; 4 the device's memory was
too small; 75 stopped early, the same command continues.
"""

import importlib.util
import logging
import os
import pathlib
import re
import sys

from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags

from lra import files, identity, machine
from lra.costs.tables import parameters
from lra.errors import UserError
from lra.report import result as result_lib

EXIT = {'ok': 0, 'diverged': 3, 'oom': 4, 'stopped': 75}
USER_ERROR = 2

_NO_CONFIG = (
    'The file of --config cannot be read: it has the form '
    'configs/<model>.py:<task>, and --list shows the models.')

_ROOT = pathlib.Path(__file__).resolve().parent.parent

CONFIG = config_flags.DEFINE_config_file(
    'config', None, 'configs/<model>.py:<task>[,protocol=lra]; fields are '
    'changed like --config.train.steps=100.', lock_config=True)
WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Run directory; by default runs/<task>/<model>/'
    '<config hash>-s<seed>.')
MAX_MINUTES = flags.DEFINE_float(
    'max_minutes', None, 'Checkpoint and stop after so many minutes.',
    lower_bound=0)
RECORD = flags.DEFINE_boolean(
    'record', True, 'Put a finished run on the leaderboard: copy its result '
    'to --results_dir and regenerate leaderboard.md.')
RESULTS_DIR = flags.DEFINE_string(
    'results_dir', str(_ROOT / 'lra' / 'results'), 'Where the leaderboard\'s '
    'records are.')
PAGE = flags.DEFINE_string(
    'page', str(_ROOT / 'leaderboard.md'), 'The leaderboard to write.')
LEADERBOARD = flags.DEFINE_boolean(
    'leaderboard', False, 'Regenerate the leaderboard from its records.')
SWEEP = flags.DEFINE_string(
    'sweep', None, 'Run the configs and seeds of a file, such as '
    'configs/sweeps/mini.txt, one after another; see lra/sweep.py.')
DRY_RUN = flags.DEFINE_boolean(
    'dry_run', False, 'With --sweep: only say what there is to run.')
LIST = flags.DEFINE_boolean('list', False, 'List models and tasks.')
CACHE = flags.DEFINE_string(
    'compile_cache', '~/.cache/lra/xla', 'Where compiled programs are kept '
    'between runs; empty for nowhere.')


def run() -> None:
  """Entry point of `run_lra.py`."""
  run_command(main)


def run_command(command) -> None:
  """Runs `command()` with flags parsed; user errors become one sentence."""
  quiet_libraries()
  try:
    app.run(lambda argv: sys.exit(command()), flags_parser=_parse_flags)
  except UserError as e:
    fail(str(e))
  except Exception as e:
    if not machine.disk_full(e):
      raise
    print('error: The disk is full: make room; the same command continues '
          'from the last checkpoint.', file=sys.stderr, flush=True)
    os._exit(USER_ERROR)  # a checkpoint's writer would complain at exit


def fail(sentence: str) -> None:
  """Ends the process with one sentence and the code for user errors."""
  print(f'error: {sentence}', file=sys.stderr)
  sys.exit(USER_ERROR)


def _parse_flags(argv):
  """Parses flags; what a config or flag gets wrong is one sentence."""
  try:
    rest = flags.FLAGS(argv)
  except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as e:
    raise UserError(_one_line(e)) from e
  except OSError as e:
    raise UserError(_NO_CONFIG) from e
  if len(rest) > 1:
    raise UserError(f'Unknown argument {rest[1]!r}: flags begin with --.')
  return rest


def _one_line(error):
  """The last line of an error, which is the one that explains it."""
  text = str(error.args[0] if error.args else error)
  text = text.replace('\\n', ' ').replace("\\'", "'").strip('\'" \n')
  if 'Traceback' in text:  # of the config file, as config_flags tells it
    text = re.sub(r'^\w+(?=: )', 'The config cannot be made',
                  text.splitlines()[-1])
  return ' '.join(text.split())


def config():
  """The value of --config or None; UserError where it names no file."""
  try:
    return CONFIG.value and CONFIG.value.copy_and_resolve_references()
  except OSError as e:
    raise UserError(_NO_CONFIG) from e


def quiet_libraries() -> None:
  """Keeps libraries off the screen: what they log, they raise as well."""
  absl_logging.set_verbosity(absl_logging.FATAL)
  logging.getLogger('jax').setLevel(logging.ERROR)
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  find = importlib.util.find_spec
  no_tpu = not any(pathlib.Path('/dev').glob('accel*')) and not any(
      pathlib.Path('/dev').glob('vfio/*'))
  if find('libtpu') and no_tpu and not find('jax_plugins'):
    # libtpu, which the ahead-of-time tests need, would look for its TPU.
    os.environ.setdefault('JAX_PLATFORMS', 'cpu')


def main() -> int:
  """Does what the flags ask; returns the exit code."""
  if LIST.value:
    print(listing())
    return 0
  if LEADERBOARD.value:
    write_leaderboard()
    return 0
  if SWEEP.value:
    return run_sweep()
  chosen = config()
  if chosen is None:
    raise UserError(
        'Nothing to do: give --config=configs/<model>.py:<task>, '
        '--sweep=FILE, --leaderboard or --list.')
  use_compile_cache(CACHE.value)
  return train(chosen)


def run_sweep() -> int:
  """Runs or describes --sweep; 0 once every run of it is finished."""
  from lra import sweep
  entries = sweep.read(pathlib.Path(SWEEP.value))
  if DRY_RUN.value:
    print(sweep.summary(entries))
    return 0
  extra = tuple(
      flags.FLAGS[name].serialize()
      for name in ('record', 'results_dir', 'page', 'compile_cache'))
  done = sweep.run(entries, extra=extra, max_minutes=MAX_MINUTES.value)
  return 0 if done else EXIT['stopped']


def listing() -> str:
  """Models, by family, with their parameters on each task; and tasks."""
  from lra import tasks
  from lra.report import catalogue
  lines = [
      f'{t.name:20}{t.seq_len:5} tokens{" x 2" if t.dual else "":5}'
      f'{t.num_classes:3} classes' for t in tasks.TASKS.values()]
  return catalogue.listing(params=parameters.table()) + '\n'.join(
      ['tasks', *lines])


def use_compile_cache(folder) -> None:
  """Keeps compiled programs in `folder`; '' for nowhere."""
  import jax
  if folder:
    jax.config.update(
        'jax_compilation_cache_dir', str(pathlib.Path(folder).expanduser()))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.5)


def train(config) -> int:
  """Trains to the end, a stop or a failure; returns the exit code."""
  values = config.to_dict()
  folder = pathlib.Path(WORKDIR.value or identity.run_folder(values))
  result = files.read_json(folder / 'result.json')
  if result is None or result['status'] not in result_lib.FINISHED:
    from lra.training import train as train_lib
    result = train_lib.Trainer(config, folder).train(MAX_MINUTES.value)
  else:
    run.check_config(folder, values)
    print(f'{folder} is finished already.')
  print(summary(result, folder))
  if RECORD.value and result['status'] in result_lib.FINISHED:
    publish(result)
  return EXIT[result['status']]


def summary(result: dict, folder: pathlib.Path) -> str:
  """What a user wants to know of a result, in a few lines."""
  lines = [f'{result["status"]}: {folder}']
  if result['status'] == 'diverged':
    lines.append(
        f'The loss was not finite by step {result["steps"]}: try a smaller '
        'config.train.learning_rate, in a new run directory.')
  if result['status'] == 'oom':
    lines.append('The device has too little memory: choose a smaller '
                 'config.train.microbatch_size or config.encoder.remat=True.')
  if result['test']:
    lines.append(f'test accuracy {result["test"]["accuracy"]:.2%} '
                 f'(checkpoint of step {result["best_step"]})')
    for name, value in sorted(
        result['floors'].items(), key=lambda item: -item[1]):
      lines.append(f'  floor {value:.2%}  {name}')
  if result['train_seconds']:
    lines.append(f'{result["steps_per_s"]:.2f} steps/s, peak memory '
                 f'{result["peak_memory_bytes"] / 2**30:.2f} GiB on '
                 f'{result["device"]}')
  return '\n'.join(lines)


def publish(result: dict) -> None:
  """Adds a finished result to the records and regenerates the page."""
  name = f'{result["model"]}-{identity.run_name(result["config"])}.json'
  path = pathlib.Path(RESULTS_DIR.value, 'runs', result['task'], name)
  if path.exists() and files.read_json(path) != result:
    print(f'The leaderboard has this run already: delete {path} to replace '
          'it.')
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write_json(path, result)
  write_leaderboard()


def write_leaderboard() -> None:
  """Regenerates the page from the records of --results_dir."""
  from lra.report import leaderboard
  results = pathlib.Path(RESULTS_DIR.value)
  leaderboard.write(PAGE.value, results / 'runs', results / 'floors',
                    results / 'published.csv', results / 'figures')
  print(f'wrote {PAGE.value}')
