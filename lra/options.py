"""The flags of `run_lra.py`, but for --config and --compile_cache."""

import itertools
import math
import pathlib
import sys

from absl import flags

from lra import command, files, place
from lra.errors import UserError

WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Run directory; by default runs/<task>/<model>/'
    '<config hash>-s<seed>.')
MAX_MINUTES = flags.DEFINE_float(
    'max_minutes', None, 'Checkpoint and stop after so many minutes.',
    lower_bound=0)
RECORD = flags.DEFINE_boolean(
    'record', None, 'Put a finished run on the leaderboard: copy its result '
    'to --results_dir and make --page again. Done by default where the '
    'settings are those of the protocol.')
REPLACE = flags.DEFINE_boolean(
    'replace', False, 'Record a run in the place of an earlier record of it.')
RESULTS_DIR = flags.DEFINE_string(
    'results_dir', str(place.results()), 'Where the leaderboard\'s records '
    'are.')
PAGE = flags.DEFINE_string(
    'page', None, 'The leaderboard to write; by default leaderboard.md, of '
    'another --results_dir the one in that folder.')
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
DISTRIBUTED = flags.DEFINE_boolean(
    'distributed', False, 'This is one of several processes of a run. Under '
    'Slurm, Open MPI, GKE and on TPU pods they find each other.')
COORDINATOR = flags.DEFINE_string(
    'coordinator', None, 'With --distributed, elsewhere: HOST:PORT of the '
    'first process.')
NUM_PROCESSES = flags.DEFINE_integer(
    'num_processes', None, 'With --coordinator: how many processes there are.',
    lower_bound=1)
PROCESS_ID = flags.DEFINE_integer(
    'process_id', None, 'With --coordinator: which one this is, from 0.',
    lower_bound=0)
EXECUTOR = flags.DEFINE_enum(
    'executor', None, ('slurm', 'local'), 'With --sweep: make it in jobs, of '
    'Slurm or of this machine.')
JOBS = flags.DEFINE_integer(
    'jobs', None, 'With --executor: how many jobs at the same time; by default '
    'one for each config with Slurm, and two on this machine.', lower_bound=1)
PARTITION = flags.DEFINE_string(
    'partition', None, 'With --executor=slurm: where its jobs run.')
HOURS = flags.DEFINE_float(
    'hours', None, 'With --executor=slurm: of each job, before it is queued '
    'again and goes on; 4 by default.', lower_bound=0.1, upper_bound=10_000)
GPUS = flags.DEFINE_integer(
    'gpus', 0, 'With --executor: GPUs of each job.', lower_bound=0)
CPUS = flags.DEFINE_integer(
    'cpus', None, 'With --executor: processor cores of each job.',
    lower_bound=1)
SEEDS = flags.DEFINE_string(
    'seeds', None, 'Seeds to train, in one process: 0-4 or 0,3.')
GRID = flags.DEFINE_multi_string(
    'grid', [], 'Values of fields to train, in one process: '
    'train.learning_rate=[0.02,0.05], or several fields with spaces between '
    'them. Rates and weight decays share one compiled step.')
AT_ONCE = flags.DEFINE_integer(
    'at_once', None, 'With --seeds, --grid or --sweep: how many runs of a '
    'process train at the same time; by default of mini tasks four on each '
    'core of a processor, at most 16, else one.',
    lower_bound=1)
STATUS = flags.DEFINE_boolean(
    'status', False, 'With --sweep: only say where its runs stand, and which '
    'have a record in --results_dir; on a terminal until all are finished, or '
    'Ctrl-C.')
MISSING = flags.DEFINE_boolean(
    'missing', False, 'With --sweep: leave out the runs that have a record in '
    '--results_dir, whoever has made it.')
PLAN = flags.DEFINE_boolean(
    'plan', False, 'With --sweep: only print how long each of its runs will '
    'take, by its own pace or by records of runs like it; with --max_minutes, '
    'which of them fit.')
BUNDLE = flags.DEFINE_string(
    'bundle', None, 'With --sweep: at the end, also after a stop, pack its '
    'runs and records into this tar file; with --max_minutes=0 pack only.')
FROM_BUNDLE = flags.DEFINE_string(
    'from_bundle', None, 'With --sweep: first unpack the runs and records of '
    'this file of --bundle, then continue.')
COMPILE_ONLY = flags.DEFINE_boolean(
    'compile_only', False, 'Compile the steps of --config into '
    '--compile_cache, and do not train.')
EVALUATE = flags.DEFINE_string(
    'evaluate', None, 'Score the model of a run directory, or of a checkpoint '
    'in it, on its test split.')
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
for _flag, _what in (
    ('workdir', 'a folder'), ('results_dir', 'a folder'), ('page', 'a file'),
    ('html', 'a folder'), ('curves', 'a file'), ('sweep', 'a file'),
    ('bundle', 'a file'), ('from_bundle', 'a file'),
    ('shard', 'a part, such as 2/5'), ('coordinator', 'HOST:PORT'),
    ('partition', 'a partition'), ('seeds', 'seeds, such as 0-4'),
    ('evaluate', 'a run directory'), ('predict', 'a file'),
    ('profile', 'updates, such as 20:30')):
  flags.register_validator(
      _flag, lambda value: value != '', f'it must name {_what}')
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
      f'--{_flag} is of jobs of Slurm: it needs --executor=slurm')
flags.register_multi_flags_validator(
    ['at_once', 'seeds', 'sweep', 'grid'], lambda values: (
        values['at_once'] is None or values['seeds'] or values['sweep'] or
        values['grid']),
    '--at_once needs --seeds, --grid or --sweep')
for _flag in ('seeds', 'grid'):
  flags.register_multi_flags_validator(
      [_flag, 'workdir'], lambda values: not all(values.values()),
      f'--{_flag} makes a run directory for each: leave out --workdir')
  flags.register_multi_flags_validator(
      ['profile', _flag], lambda values: not all(values.values()),
      f'--profile is of one run, not of --{_flag}')
flags.register_multi_flags_validator(
    ['distributed', 'at_once'], lambda values: not all(values.values()),
    '--distributed is of one run at a time: leave out --at_once')
flags.register_multi_flags_validator(
    ['executor', 'shard'], lambda values: None in values.values(),
    '--executor makes the parts itself: leave out --shard')

for _flag in ('status', 'executor', 'bundle', 'from_bundle'):
  flags.register_multi_flags_validator(
      ['plan', _flag], lambda values, flag=_flag: not all(values.values()),
      f'--plan changes nothing: leave out --{_flag}')
for _flag in ('bundle', 'from_bundle'):
  for _other in ('status', 'executor'):
    flags.register_multi_flags_validator(
        [_flag, _other], lambda values: not all(values.values()),
        f'--{_flag} is of a sweep that runs here: leave out --{_other}')

# Flags that name a file or a folder; the shell leaves the ~ of --flag=~ alone.
_PATHS = ('bundle', 'curves', 'evaluate', 'from_bundle', 'html', 'page',
          'predict', 'results_dir', 'workdir')
_RUNS = ('at_once', command.CACHE.name, 'log', 'max_minutes', 'page', 'record',
         'replace', 'results_dir')
# Commands by the flag that asks for them, and the other flags of each.
COMMANDS = {
    'list': (),
    'leaderboard': ('html', 'page', 'results_dir'),
    'curves': (),
    'sweep': ('bundle', 'cpus', 'executor', 'from_bundle', 'gpus', 'hours',
              'jobs', 'missing', 'partition', 'plan', 'shard', 'status',
              *_RUNS),
    'evaluate': (),
    'predict': (),
    'compare': (),
    command.CONFIG.name: (
        'compile_only', 'coordinator', 'distributed', 'grid', 'num_processes',
        'process_id', 'profile', 'seeds', 'workdir', *_RUNS),
}


def check() -> None:
  """Makes sure that all flags are of one command.

  Raises:
    UserError: two commands are asked for, a flag is of another one, or two
      contradict each other.
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
    raise UserError(f'--{asked[0]} and --{asked[1]} are commands of their own: '
                    'leave out one of them.')
  for name in given:
    takers = [taker for taker in COMMANDS if name in COMMANDS[taker]]
    if name not in asked and not set(takers) & set(asked):
      needed = ' or '.join(f'--{taker}' for taker in takers)
      raise UserError(f'--{name} needs {needed}' + ''.join(
          f' and means nothing to --{other}: leave out one of them'
          for other in asked) + '.')
