"""Floors of a task: scores that need no neural network."""

import pathlib

from data_prep import floors as measured
from lra import files, tasks
from lra.data.prepared import Prepared


def of_data(task: tasks.Task, data: Prepared,
            records: pathlib.Path = measured.RECORDS) -> dict[str, float]:
  """Floors on this very data: name -> accuracy, a fraction.

  Those that cost no time are computed; the others are read from the committed
  record of `python -m data_prep --floors`, if it is of the same data.

  Raises:
    UserError: the record is damaged.
  """
  floors = measured.quick(task.name, data.splits)
  kept = files.read_json(records / f'{task.name}.json')
  if kept and kept['fingerprint'] == data.fingerprint:
    floors |= {k: v['accuracy'] for k, v in kept['floors'].items()}
  return floors
