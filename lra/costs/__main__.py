"""Costs of a config, and of all models side by side.

`python -m lra.costs --config=configs/simpletron.py:listops_mini` runs, in
turns, the loop that `run_lra.py` runs (data, dispatch, logging, progress bar)
and the compiled step alone on a batch that is already there, and prints
seconds per step of both, the loop's overhead and the peak memory. It takes
about 20 seconds beside compiling, unless --rounds says how long. `--drawn`
times the compiled step on random tokens of full length, without a data set,
such as that of Path-X, which takes hours to draw.

`--memory` and `--speed` write the tables of all models, `memory.md` and
`speed.md` with `speed.json`, to --out; `--layers` that of the bytes which
layers move on accelerators that need not be here, `layers.md`; `--launches`
that of the kernels which training steps launch on a GPU, `launches.md`;
`--collectives` what the devices of a config's mesh tell each other. `--onchip`
measures errors and times of the kernels on an accelerator that is.
"""

import functools
import importlib
import json
import pathlib

from absl import flags

from lra import command, place, streams
from lra.errors import UserError

STEPS = flags.DEFINE_integer(
    'steps', 100, 'Steps per stretch; without --rounds at most so many.',
    lower_bound=1)
ROUNDS = flags.DEFINE_integer(
    'rounds', None, 'Stretches of the loop, of which medians are reported; by '
    'default as many as take about 20 seconds, but three at least.',
    lower_bound=1)
DRAWN = flags.DEFINE_bool(
    'drawn', False, 'Times the step of --config on random tokens instead of '
    'its data.')
MEMORY = flags.DEFINE_bool('memory', False, 'Table of memory of all models.')
SPEED = flags.DEFINE_bool('speed', False, 'Table of step times of all models.')
LAYERS = flags.DEFINE_list(
    'layers', None, 'Table of bytes moved by layers, compiled for these '
    'targets, such as v5e,v6e,h200.')
LAUNCHES = flags.DEFINE_string(
    'launches', None, 'Table of kernels launched by training steps, compiled '
    'for this GPU, such as h200.')
COLLECTIVES = flags.DEFINE_list(
    'collectives', None, 'What a step of --config tells between so many '
    'devices, such as 8,64,256.')
ONCHIP = flags.DEFINE_string(
    'onchip', None, 'Errors, races and times of kernels and layers on the '
    'device that is here, into this JSON file.')
STAGES = flags.DEFINE_list(
    'stages', None, 'What --onchip does; all by default.')
OUT = flags.DEFINE_string(
    'out', str(place.results()), 'Where the tables go.')


def main() -> int:
  """Prints figures as JSON, or tables; returns the exit code."""
  from lra.costs import collectives, loop, onchip, tables
  config = command.config()
  made = {'memory': tables.memory if MEMORY.value else None,
          'speed': SPEED.value and (
              lambda: tables.speed(pathlib.Path(OUT.value))),
          **{name: targets and functools.partial(_compiled, name, targets)
             for name, targets in (('layers', LAYERS.value),
                                   ('launches', LAUNCHES.value))},
          'collectives': COLLECTIVES.value and config is None and (
              lambda: collectives.tables(COLLECTIVES.value))}
  for name, make in made.items():
    if make:
      print(tables.write(pathlib.Path(OUT.value) / f'{name}.md', make()))
  if ONCHIP.value:
    stages = onchip.STAGES if STAGES.value is None else STAGES.value
    unknown = set(stages) - set(onchip.STAGES)
    if unknown:
      raise UserError(f'--stages has no {sorted(unknown)[0]!r}: choose from '
                      f'{", ".join(onchip.STAGES)}.')
    onchip.run(pathlib.Path(ONCHIP.value), stages)
  if ONCHIP.value or any(made.values()):
    return 0
  if config is None:
    raise UserError(
        'Nothing to measure: give --config=configs/<model>.py:<task>, '
        '--memory, --speed, --layers, --launches or --onchip.')
  if COLLECTIVES.value:
    print('\n'.join(collectives.report(config, COLLECTIVES.value)))
    return 0
  command.use_compile_cache()
  print(json.dumps(loop.measure(
      config, steps=STEPS.value, rounds=ROUNDS.value, drawn=DRAWN.value),
                   indent=1))
  return 0


def _compiled(name, targets):
  """Lines of the table of what is compiled for `targets`."""
  return importlib.import_module(f'lra.costs.{name}').tables(targets)


if __name__ == '__main__':
  streams.keep()
  command.run(main)
