"""Measures the costs of a config, or of all models side by side.

`python -m tools --config=configs/simpletron.py:listops_mini` times two
things in turns. One is the loop of `run_lra.py` (data, dispatch, logging,
progress bar). The other is the compiled step alone, always on the same batch.
It prints seconds per step of both, the loop's overhead and the peak memory.
Without --rounds it takes about 20 seconds plus compilation. `--drawn` times the
compiled step on random tokens of full length, without a data set (that of
Path-X takes over an hour to generate).

Other flags write tables of all models to --out. `--memory` writes `memory.md`;
`--speed` writes `speed.md` and `speed.json`. `--full_tasks` estimates the hours
and memory of full tasks (`hours.md`). `--layers` counts the bytes that layers
move (`layers.md`), `--recurrent` those of recurrent mixers and their copies
(`recurrent.md`), and `--launches` the kernels that training steps launch on a
GPU (`launches.md`). The accelerators need not be present.
`--int8=RUN,RUN` compares trained models with their int8 versions, and
`--better_attention` counts and times the layers of arXiv 2403.01643. `--center`
times full, flash, window and sink attention. The three write JSON to `studies/`
in --out.
`--collectives` counts the bytes that devices of a mesh send. `--onchip`
measures errors and times of the kernels on the accelerator of this machine.
"""

import importlib
import json
import pathlib
import sys

from absl import flags

from lra.cli import command
from lra.core import paths, streams
from lra.core.errors import UserError

STEPS = flags.DEFINE_integer(
    'steps', 100, 'Steps per stretch; the most steps without --rounds.',
    lower_bound=1)
ROUNDS = flags.DEFINE_integer(
    'rounds', None, 'Number of stretches of the loop, for the medians; by '
    'default about 20 seconds of them, but at least three.',
    lower_bound=1)
DRAWN = flags.DEFINE_bool(
    'drawn', False, 'Times the step of --config on random tokens instead of '
    'its data.')
MEMORY = flags.DEFINE_bool('memory', False, 'Table of memory of all models.')
SPEED = flags.DEFINE_bool('speed', False, 'Table of step times of all models.')
FULL_TASKS = flags.DEFINE_bool(
    'full_tasks', False, 'Table of hours and memory of full tasks on GPUs and '
    'a CPU that need not be present.')
LAYERS = flags.DEFINE_list(
    'layers', None, 'Table of bytes moved by layers, compiled for these '
    'targets, such as v5e,v6e,h200.')
RECURRENT = flags.DEFINE_list(
    'recurrent', None, 'Table of bytes moved and copied by recurrent mixers, '
    'compiled for these targets, such as v5e,v6e,h200.')
LAUNCHES = flags.DEFINE_string(
    'launches', None, 'Table of kernels launched by training steps, compiled '
    'for this GPU, such as h200.')
INT8 = flags.DEFINE_list(
    'int8', None, 'Compares the models of these runs with int8 versions of '
    'them: accuracy, bytes, seconds.')
BETTER_ATTENTION = flags.DEFINE_bool(
    'better_attention', False, 'Parameters, multiplications and times of '
    'standard, optimised, efficient and super attention.')
CENTER = flags.DEFINE_bool(
    'center', False, 'Times of training steps with full, flash, window and '
    'sink attention, in turns.')
COLLECTIVES = flags.DEFINE_list(
    'collectives', None, 'Counts the bytes that devices send in a step of '
    '--config, for these numbers of devices, such as 8,64,256.')
ONCHIP = flags.DEFINE_string(
    'onchip', None, 'Writes errors, races and times of kernels and layers on '
    'this machine\'s device to this JSON file.')
STAGES = flags.DEFINE_list(
    'stages', None, 'Stages of --onchip to run; all by default.')
OUT = flags.DEFINE_string(
    'out', str(paths.results()), 'Folder of the tables.')


def main() -> int:
  """Prints figures as JSON, or tables; returns the exit code."""
  from tools import hours, step, tables
  experiment, out = command.experiment(), pathlib.Path(OUT.value)
  compiled = {'layers': LAYERS.value, 'recurrent': RECURRENT.value,
              'launches': LAUNCHES.value,
              'collectives': experiment is None and COLLECTIVES.value}
  made = {
      'memory': (tables.memory, MEMORY.value and ()),
      'hours': (hours.tables, FULL_TASKS.value and ()),
      'speed': (tables.speed, SPEED.value and (out,)),
      **{name: (lambda *targets, name=name: _module(name).tables(*targets),
                targets and (targets,))
         for name, targets in compiled.items()}}
  asked = {name: (make, arguments) for name, (make, arguments) in made.items()
           if isinstance(arguments, tuple)}
  for name, (make, arguments) in asked.items():
    print(tables.write(out / f'{name}.md', make(*arguments)))
  if ONCHIP.value:
    onchip = _module('onchip')
    stages = onchip.STAGES if STAGES.value is None else STAGES.value
    unknown = set(stages) - set(onchip.STAGES)
    if unknown:
      raise UserError(f'--stages has no {sorted(unknown)[0]!r}: choose from '
                      f'{", ".join(onchip.STAGES)}.')
    onchip.run(pathlib.Path(ONCHIP.value), stages)
  studied = {
      'int8': INT8.value and _module('studies').int8,
      'better_attention': (
          BETTER_ATTENTION.value and _module('better_attention').rows),
      'center': CENTER.value and _module('center').rows}
  for name, rows in studied.items():
    if rows:
      given = [INT8.value] if name == 'int8' else []
      print(_module('studies').write(
          out, name, rows(*given),
          '--' + '='.join([name, *map(','.join, given)])))
  if ONCHIP.value or asked or any(studied.values()):
    return 0
  if experiment is None:
    raise UserError(
        'Nothing to measure: give --config=configs/<model>.py:<task>, '
        '--memory, --speed, --full_tasks, --layers, --recurrent, --launches, '
        '--int8, --better_attention, --center or --onchip.')
  if COLLECTIVES.value:
    print('\n'.join(_module('collectives').report(
        experiment.config, COLLECTIVES.value)))
    return 0
  command.use_compile_cache()
  print(json.dumps(step.measure(
      experiment, steps=STEPS.value, rounds=ROUNDS.value, drawn=DRAWN.value),
                   indent=1))
  return 0


def _module(name):
  """Imports a module of this package that needs `tools`.

  Raises:
    UserError: this is an installed package, which lacks these tools.
  """
  try:
    return importlib.import_module(f'tools.{name}')
  except ModuleNotFoundError as error:
    if not (error.name or '').startswith('tools'):
      raise
    raise UserError(
        f'--{name} needs tools, which an installed package lacks: run '
        'it in a checkout of the repository.') from error


def run() -> None:
  """Runs the command."""
  sys.modules['__main__'].__doc__ = __doc__  # begins the text of --helpfull
  command.run(main)


if __name__ == '__main__':
  streams.keep()
  run()
