"""The flags of training, except --config and --compile_cache."""

import math
import os
import pathlib
import sys

from absl import flags

from lra.cli import command
from lra.core import files, paths
from lra.core.errors import UserError

WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Run directory. Default: runs/<task>/<model>/'
    '<config hash>-s<seed>.')
MAX_MINUTES = flags.DEFINE_float(
    'max_minutes', None, 'Checkpoint and stop after this many minutes.',
    lower_bound=0)
RECORD = flags.DEFINE_boolean(
    'record', None, 'Put the finished run on the leaderboard: copy its result '
    'to --results_dir and write --page again. Default: yes if the settings are '
    'those of the protocol.')
REPLACE = flags.DEFINE_boolean(
    'replace', False, 'Replace an earlier record of the same run.')
RESULTS_DIR = flags.DEFINE_string(
    'results_dir', str(paths.results()), 'Folder of the leaderboard\'s '
    'records, baselines and figures.')
PAGE = flags.DEFINE_string(
    'page', None, 'The leaderboard file to write. Default: leaderboard.md, or '
    'leaderboard.md in --results_dir if that is given.')
DISTRIBUTED = flags.DEFINE_boolean(
    'distributed', False, 'Train one run with several processes, of which this '
    'is one. Under Slurm, Open MPI, GKE and on TPU pods the processes find '
    'each other.')
COORDINATOR = flags.DEFINE_string(
    'coordinator', None, 'With --distributed, if the processes do not find '
    'each other: HOST:PORT of the first process.')
NUM_PROCESSES = flags.DEFINE_integer(
    'num_processes', None, 'With --coordinator: the number of processes.',
    lower_bound=1)
PROCESS_ID = flags.DEFINE_integer(
    'process_id', None, 'With --coordinator: the number of this process, from '
    '0.', lower_bound=0)
SEEDS = flags.DEFINE_string(
    'seeds', None, 'Seeds to train in one process: 0-4 or 0,3.')
GRID = flags.DEFINE_multi_string(
    'grid', [], 'Field values to train in one process: '
    'train.learning_rate=[0.02,0.05]. Separate several fields by spaces. '
    'Learning rates and weight decays share one compiled step.')
SEARCH = flags.DEFINE_enum(
    'search', None, ('optuna',), 'With --space: try --trials settings that '
    'Optuna draws, choose one by validation, then test it with all --seeds. '
    'The first seed is that of the search.')
SPACE = flags.DEFINE_string(
    'space', None, 'With --search: the fields to search: '
    'train.learning_rate=log(1e-4,1e-1), train.weight_decay=uniform(0,0.1), '
    'model.num_heads=int(1,8) or train.warmup_steps=[0,100]. Separate several '
    'fields by spaces.')
TRIALS = flags.DEFINE_integer(
    'trials', 20, 'With --search: number of settings to try.', lower_bound=1,
    upper_bound=1000)
AT_ONCE = flags.DEFINE_integer(
    'at_once', None, 'With --seeds or --grid: number of runs to train at the '
    'same time. Default: one, but for mini tasks on a CPU four per core and at '
    'most 16.', lower_bound=1)
TEST = flags.DEFINE_boolean(
    'test', True, 'Score the test split at the end. --notest only trains and '
    'validates; the same command without it then scores the test split.')
LOG = flags.DEFINE_list(
    'log', [], 'Further formats of the log in the run directory, besides '
    'metrics.jsonl: csv, tensorboard, wandb, mlflow.')
PROFILE = flags.DEFINE_string(
    'profile', None, 'Record a trace of the steps FIRST:LAST, such as 20:30, '
    'in profile/ of the run directory.')
TRIAL = flags.DEFINE_boolean(
    'trial', False, 'Make 10 steps and validate on 2 batches, then print what '
    'the whole run would take here in hours and memory. Nothing is recorded or '
    'kept.')
PRINT_CONFIG = flags.DEFINE_boolean(
    'print_config', False, 'Print every field of the config with its value, '
    'meaning and range, and do not train.')
COMPILE_ONLY = flags.DEFINE_boolean(
    'compile_only', False, 'Compile the steps into --compile_cache and do not '
    'train.')

# Flag, flags of which it needs one, and their form.
_NEEDS = (
    ('coordinator', 'distributed', '--distributed'),
    ('num_processes', 'coordinator', '--coordinator'),
    ('process_id', 'coordinator', '--coordinator'),
    ('coordinator', 'num_processes', '--num_processes'),
    ('at_once', 'seeds grid', '--seeds or --grid'),
    ('space', 'search', '--search=optuna'),
    ('trials', 'search', '--search=optuna'),
    ('search', 'space', '--space, such as '
     '--space=train.learning_rate=log(1e-4,1e-1)'))
# Flag, flags that contradict it, and the reason.
_CONTRADICTS = (
    ('seeds', 'workdir', 'makes a run directory for each'),
    ('grid', 'workdir', 'makes a run directory for each'),
    ('profile', 'seeds grid', 'is for one run'),
    ('search', 'grid distributed workdir profile at_once',
     'trains one run after another, each in a directory of its own'),
    ('distributed', 'at_once', 'trains one run at a time'))


def names() -> set[str]:
  """Returns the names of the flags of training."""
  return {command.CONFIG.name, command.CACHE.name, *(
      flag.name for flag in flags.FLAGS.flags_by_module_dict()[__name__])}


def check() -> None:
  """Checks the flags together, and expands `~` in paths: no shell does in
  --flag=~.
  """
  values = {name: flags.FLAGS[name].value for name in names()}
  given = {name for name, value in values.items()
           if value != flags.FLAGS[name].default}
  for name in ('page', 'results_dir', 'workdir'):
    if (values[name] or '').startswith('~'):
      flags.FLAGS[name].value = str(files.expanded(pathlib.Path(values[name])))
  if not math.isfinite(values['max_minutes'] or 0):
    raise UserError(f'--max_minutes={values["max_minutes"]}: it must be a '
                    'finite number of at least 0.')
  if values['workdir'] and os.path.realpath(values['workdir']) == '/':
    raise UserError(f'--workdir={values["workdir"]} is the root folder, and a '
                    'run needs a folder of its own.')
  if {'--record', '--norecord'} <= set(sys.argv):
    raise UserError('--record and --norecord: leave out one of them.')
  for name, needed, form in _NEEDS:
    if name in given and given.isdisjoint(needed.split()):
      raise UserError(f'--{name} needs {form}.')
  for name, others, why in _CONTRADICTS:
    for other in others.split() if name in given else ():
      if other in given:
        raise UserError(f'--{name} {why}: leave out --{other}.')
  for name in sorted(given - {'trial', 'config', 'compile_cache'}) if (
      TRIAL.value) else ():
    raise UserError('--trial makes a few steps of one run and keeps nothing: '
                    f'leave out --{"no" * (values[name] is False)}{name}.')
