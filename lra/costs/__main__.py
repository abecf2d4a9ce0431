"""Costs of a config, and of all models side by side.

`python -m lra.costs --config=configs/simpletron.py:listops_mini` runs, in
turns, the loop that `run_lra.py` runs (data, dispatch, logging, progress bar)
and the compiled step alone on a batch that is already there, and prints
seconds per step of both, the loop's overhead and the peak memory.

`--memory` and `--speed` write the tables of all models, `memory.md` and
`speed.md`, to --out.
"""

import json
import pathlib

from absl import flags

from lra import command, files
from lra.errors import UserError

STEPS = flags.DEFINE_integer(
    'steps', 100, 'Steps per stretch.', lower_bound=1)
ROUNDS = flags.DEFINE_integer(
    'rounds', 25, 'Stretches of the loop; medians are reported.',
    lower_bound=1)
MEMORY = flags.DEFINE_bool('memory', False, 'Table of memory of all models.')
SPEED = flags.DEFINE_bool('speed', False, 'Table of step times of all models.')
OUT = flags.DEFINE_string(
    'out', str(pathlib.Path(__file__).parents[1] / 'results'),
    'Where the tables go.')


def main() -> int:
  """Prints figures as JSON, or tables; returns the exit code."""
  from lra.costs import loop, tables
  for name, wanted in (('memory', MEMORY.value), ('speed', SPEED.value)):
    if wanted:
      text = '\n'.join(getattr(tables, name)()) + '\n'
      files.write_all({pathlib.Path(OUT.value) / f'{name}.md': text.encode()})
      print(text)
  if MEMORY.value or SPEED.value:
    return 0
  config = command.config()
  if config is None:
    raise UserError(
        'Nothing to measure: give --config=configs/<model>.py:<task>, '
        '--memory or --speed.')
  command.use_compile_cache()
  print(json.dumps(
      loop.measure(config, steps=STEPS.value, rounds=ROUNDS.value), indent=1))
  return 0


if __name__ == '__main__':
  command.run(main)
