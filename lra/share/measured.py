"""Writes measurements that no training record holds, for the studies' page."""

import datetime
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence

import jax

from lra.core import files, machine


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


def interleaved(calls: Sequence[Callable], seconds: float, least: int = 5
                ) -> list[list[float]]:
  """Times functions in turns, so that other programs slow all of them alike.

  Args:
    calls: functions that return arrays of JAX. Each is called once before.
    seconds: no round begins later, after the `least` first ones.
    least: number of rounds to make in any case.

  Returns:
    For each function, its seconds in each round.
  """
  for call in calls:
    jax.block_until_ready(call())
  found = [[] for _ in calls]
  start = time.perf_counter()
  while len(found[0]) < least or time.perf_counter() - start < seconds:
    for call, times in zip(calls, found, strict=True):
      before = time.perf_counter()
      jax.block_until_ready(call())
      times.append(time.perf_counter() - before)
  return found


def quartiles(numbers: Sequence[float]) -> tuple[float, float, float]:
  """Returns the first quartile, the median and the third quartile."""
  low, middle, high = statistics.quantiles(numbers, n=4, method='inclusive')
  return low, middle, high
