"""The flags of training, except --config and --compile_cache."""

import itertools
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
SWEEP = flags.DEFINE_string(
    'sweep', None, 'Train the configs and seeds of a file, such as '
    'configs/sweeps/mini.txt, one after another. See docs/sweeps.md.')
SHARD = flags.DEFINE_string(
    'shard', None, 'With --sweep: train one part of its runs. For example, 2/5 '
    'is the second of five parts, for the second of five machines.')
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
    '0.',
    lower_bound=0)
EXECUTOR = flags.DEFINE_enum(
    'executor', None, ('slurm', 'local'), 'With --sweep: train the sweep in '
    'jobs, started by Slurm (slurm) or on this machine (local).')
JOBS = flags.DEFINE_integer(
    'jobs', None, 'With --executor: number of jobs at the same time. Default: '
    'one per config with Slurm, two on this machine.', lower_bound=1)
PARTITION = flags.DEFINE_string(
    'partition', None, 'With --executor=slurm: the partition of its jobs.')
HOURS = flags.DEFINE_float(
    'hours', None, 'With --executor=slurm: time limit of each job. A job that '
    'reaches the limit is queued again and resumes. Default: 4.',
    lower_bound=0.1, upper_bound=10_000)
GPUS = flags.DEFINE_integer(
    'gpus', 0, 'With --executor: GPUs per job.', lower_bound=0)
CPUS = flags.DEFINE_integer(
    'cpus', None, 'With --executor: CPU cores per job.',
    lower_bound=1)
SEEDS = flags.DEFINE_string(
    'seeds', None, 'Seeds to train in one process: 0-4 or 0,3.')
GRID = flags.DEFINE_multi_string(
    'grid', [], 'Field values to train in one process: '
    'train.learning_rate=[0.02,0.05]. Separate several fields by spaces. '
    'Learning rates and weight decays share one compiled step.')
SEARCH = flags.DEFINE_enum(
    'search', None, ('optuna',), 'With --config and --space: try --trials '
    'settings that Optuna draws, choose one by validation, then test it with '
    'all --seeds. The first seed is that of the search.')
SPACE = flags.DEFINE_string(
    'space', None, 'With --search: the fields to search: '
    'train.learning_rate=log(1e-4,1e-1), train.weight_decay=uniform(0,0.1), '
    'model.num_heads=int(1,8) or train.warmup_steps=[0,100]. Separate several '
    'fields by spaces.')
TRIALS = flags.DEFINE_integer(
    'trials', 20, 'With --search: number of settings to try.', lower_bound=1,
    upper_bound=1000)
AT_ONCE = flags.DEFINE_integer(
    'at_once', None, 'With --seeds, --grid, --sweep or --suite: number of runs '
    'that a process trains at the same time. Default: one, but for mini tasks '
    'on a CPU four per core and at most 16.',
    lower_bound=1)
STATUS = flags.DEFINE_boolean(
    'status', False, 'With --sweep: only show the progress of its runs and '
    'which have a record in --results_dir. On a terminal the table is updated '
    'until all are finished.')
MISSING = flags.DEFINE_boolean(
    'missing', False, 'With --sweep: skip runs that have a record in '
    '--results_dir.')
PLAN = flags.DEFINE_boolean(
    'plan', False, 'With --sweep or --suite: only estimate the minutes of each '
    'run, from its own speed or from records of similar runs. With '
    '--max_minutes, also show which runs fit in that time.')
BUNDLE = flags.DEFINE_string(
    'bundle', None, 'With --sweep: when the sweep ends or stops, pack its runs '
    'and records into this tar file. --max_minutes=0 packs without training.')
FROM_BUNDLE = flags.DEFINE_string(
    'from_bundle', None, 'With --sweep: first unpack the runs and records of '
    'this --bundle file.')
SUITE = flags.DEFINE_string(
    'suite', None, 'Try the same settings with every model, choose by '
    'validation, then test the chosen one: lra, mad, mqar, state, or a file. '
    'See docs/sweeps.md.')
MODELS = flags.DEFINE_list(
    'models', [], 'With --suite: the models, such as transformer,lightning. '
    'Default: those of the suite.')
TEST = flags.DEFINE_boolean(
    'test', True, 'Score the test split at the end. --notest only trains and '
    'validates; the same command without it then scores the test split.')
SHOW_TEST = flags.DEFINE_boolean(
    'show_test', True, 'Print test scores. A sweep that compares settings '
    'turns this off for its runs and prints the test score of the best setting '
    'by validation.')
COMPILE_ONLY = flags.DEFINE_boolean(
    'compile_only', False, 'Compile the steps of --config into --compile_cache '
    'and do not train.')
LOG = flags.DEFINE_list(
    'log', [], 'Further formats of the log in the run directory, besides '
    'metrics.jsonl: csv, tensorboard, wandb, mlflow.')
PROFILE = flags.DEFINE_string(
    'profile', None, 'Record a trace of the steps FIRST:LAST, such as 20:30, '
    'in profile/ of the run directory.')
TRIAL = flags.DEFINE_boolean(
    'trial', False, 'Make 10 steps of --config and validate on 2 batches, then '
    'print what the whole run would take here in hours and memory. Nothing is '
    'recorded or kept.')
PRINT_CONFIG = flags.DEFINE_boolean(
    'print_config', False, 'Print every field of --config with its value, '
    'meaning and range, and do not train.')
flags.register_validator(
    'max_minutes', lambda minutes: minutes is None or math.isfinite(minutes),
    'it must be a finite number of at least 0')
for _flag, _what in (
    ('workdir', 'a folder'), ('results_dir', 'a folder'), ('page', 'a file'),
    ('sweep', 'a file'), ('suite', 'a suite'),
    ('bundle', 'a file'), ('from_bundle', 'a file'),
    ('shard', 'a part, such as 2/5'), ('coordinator', 'HOST:PORT'),
    ('partition', 'a partition'), ('seeds', 'seeds, such as 0-4'),
    ('profile', 'steps, such as 20:30')):
  flags.register_validator(
      _flag, lambda value: value != '', f'it must name {_what}')
flags.register_validator(
    'workdir', lambda folder: not folder or os.path.realpath(folder) != '/',
    "it is the root folder, and a run needs a folder of its own")
for _flag, _needed in (('jobs', 'executor'), ('gpus', 'executor'),
                       ('cpus', 'executor'),
                       ('coordinator', 'distributed'),
                       ('num_processes', 'coordinator'),
                       ('process_id', 'coordinator'),
                       ('coordinator', 'num_processes')):
  flags.register_multi_flags_validator(
      [_flag, _needed], lambda values, flag=_flag, needed=_needed: (
          values[needed] or values[flag] == flags.FLAGS[flag].default),
      f'--{_flag} needs --{_needed}')
for _flag in ('partition', 'hours'):
  flags.register_multi_flags_validator(
      [_flag, 'executor'], lambda values, flag=_flag: (
          values[flag] is None or values['executor'] == 'slurm'),
      f'--{_flag} is for Slurm jobs: it needs --executor=slurm')
flags.register_multi_flags_validator(
    ['at_once', 'seeds', 'sweep', 'suite', 'grid'], lambda values: (
        values['at_once'] is None or values['seeds'] or values['sweep'] or
        values['suite'] or values['grid']),
    '--at_once needs --seeds, --grid, --sweep or --suite')
for _flag in ('space', 'trials'):
  flags.register_multi_flags_validator(
      [_flag, 'search'], lambda values, flag=_flag: (
          values['search'] or values[flag] == flags.FLAGS[flag].default),
      f'--{_flag} needs --search=optuna')
flags.register_multi_flags_validator(
    ['search', 'space'], lambda values: not values['search'] or values['space'],
    '--search needs --space, such as '
    '--space=train.learning_rate=log(1e-4,1e-1)')
# Flag, flags that contradict it, and the reason.
for _flag, _others, _why in (
    ('seeds', ('workdir',), 'makes a run directory for each'),
    ('grid', ('workdir',), 'makes a run directory for each'),
    ('profile', ('seeds', 'grid'), 'is for one run'),
    ('search', ('grid', 'distributed', 'workdir', 'profile', 'at_once'),
     'trains one run after another, each in a directory of its own'),
    ('distributed', ('at_once',), 'trains one run at a time'),
    ('executor', ('shard',), 'makes the parts itself'),
    ('plan', ('status', 'executor', 'bundle', 'from_bundle'),
     'changes nothing'),
    ('bundle', ('status', 'executor'), 'is for a sweep that runs here'),
    ('from_bundle', ('status', 'executor'), 'is for a sweep that runs here')):
  for _other in _others:
    flags.register_multi_flags_validator(
        [_flag, _other], lambda values: not all(values.values()),
        f'--{_flag} {_why}: leave out --{_other}')

# Flags that name a file or a folder. The shell does not expand ~ in --flag=~.
_PATHS = ('bundle', 'from_bundle', 'page', 'results_dir', 'workdir')
_RUNS = ('at_once', command.CACHE.name, 'log', 'max_minutes', 'page', 'record',
         'replace', 'results_dir')
# Flag that selects a command -> the other flags of the command.
COMMANDS = {
    'sweep': ('bundle', 'cpus', 'executor', 'from_bundle', 'gpus', 'hours',
              'jobs', 'missing', 'partition', 'plan', 'shard', 'status',
              *_RUNS),
    'suite': ('models', 'plan', *_RUNS),
    command.CONFIG.name: (
        'compile_only', 'coordinator', 'distributed', 'grid', 'num_processes',
        'print_config', 'process_id', 'profile', 'search', 'seeds',
        'show_test', 'space', 'test', 'trial', 'trials', 'workdir', *_RUNS),
}


def check() -> None:
  """Checks that all flags belong to one command.

  Raises:
    UserError: two commands are given, a flag needs a command that is not given,
      or two flags contradict each other.
  """
  names = dict.fromkeys((*COMMANDS, *itertools.chain(*COMMANDS.values())))
  given = [name for name in names
           if flags.FLAGS[name].value != flags.FLAGS[name].default]
  asked = [name for name in COMMANDS if name in given]
  for name in _PATHS:
    if (flags.FLAGS[name].value or '').startswith('~'):
      flags.FLAGS[name].value = str(files.expanded(
          pathlib.Path(flags.FLAGS[name].value)))
  if {'--record', '--norecord'} <= set(sys.argv):
    raise UserError('--record and --norecord: leave out one of them.')
  if len(asked) > 1:
    raise UserError(f'--{asked[0]} and --{asked[1]} are two commands: leave '
                    'out one of them.')
  if TRIAL.value and command.CONFIG.name in asked:
    for name in given:
      if name not in ('trial', command.CONFIG.name, command.CACHE.name):
        raise UserError('--trial makes a few steps of one run and keeps '
                        'nothing: leave out '
                        f'--{"no" * (flags.FLAGS[name].value is False)}{name}.')
  for name in given:
    takers = [taker for taker in COMMANDS if name in COMMANDS[taker]]
    if name not in asked and not set(takers) & set(asked):
      needed = ' or '.join(f'--{taker}' for taker in takers)
      raise UserError(f'--{name} needs {needed}' + ''.join(
          f' and has no effect with --{other}: leave out one of them'
          for other in asked) + '.')
