"""Measurements that no record of training holds, for the page of studies."""

import datetime
import json
import pathlib
from collections.abc import Sequence

import jax

from lra.core import files, machine
from lra.share import quantised


def write(out: pathlib.Path, name: str, rows: list[dict], flag: str) -> str:
  """Writes `OUT/studies/NAME.json`; returns its text.

  Args:
    out: folder of the results.
    name: name of the study.
    rows: the rows of its table; keys are headings with units.
    flag: the flag of `python -m tools` that measured them.

  Raises:
    UserError: the folder cannot be written.
  """
  state = machine.git_state()
  changed = ' (modified)' * bool(state['git_dirty'])
  text = json.dumps({
      'rows': rows,
      'environment': {
          'device': machine.device_name(), 'jax': jax.__version__,
          'date': datetime.datetime.now(datetime.UTC).date().isoformat()},
      'commit': state['git_commit'] and state['git_commit'] + changed,
      'command': ' '.join(['python -m tools', flag])}, indent=1) + '\n'
  files.write_all({out / 'studies' / f'{name}.json': text.encode()})
  return text


def int8(folders: Sequence[str]) -> list[dict]:
  """Measures runs and their int8 versions; returns a row of each."""
  return [int8_row(quantised.measure(folder)) for folder in folders]


def int8_row(pair: quantised.Pair) -> dict:
  """Returns the row of a table: heading -> value."""
  dtype = pair.trained.program.dtype
  float_, int8_ = (sample.accuracies[0] for sample in pair.samples)
  return {
      'model': pair.trained.config.model.name,
      'task': pair.trained.config.task,
      f'accuracy {dtype} %': round(100 * float_, 2),
      'accuracy int8 %': round(100 * int8_, 2),
      'difference (points)': round(100 * (int8_ - float_), 2),
      f'right only in {dtype}': pair.only[0],
      'right only in int8': pair.only[1],
      'p (McNemar)': round(pair.p, 4),
      f'parameters {dtype} (bytes)': pair.bytes[0],
      'parameters int8 (bytes)': pair.bytes[1],
      f'{dtype} (ms per example)': round(1e3 * pair.seconds[0], 4),
      'int8 (ms per example)': round(1e3 * pair.seconds[1], 4),
      'time int8 / ' + dtype: round(pair.ratios[1], 3),
      'time, quartiles': ' to '.join(f'{pair.ratios[i]:.3f}' for i in (0, 2)),
      'batch size': pair.batch_size}
