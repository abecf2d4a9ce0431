"""Floors of a task: scores that need no neural network."""

import pathlib

from data_prep import floors as measured
from lra import tasks
from lra.data.prepared import Prepared
from lra.errors import UserError
from lra.report import record
from lra.report.record import Fraction, Record, TaskName, Text


class MeasuredFloor(Record):
  """What one method scores: its accuracy, a fraction, and how it works."""
  accuracy: Fraction
  how: Text


class Floors(Record):
  """The floors of a task, measured on the data with this fingerprint."""
  task: TaskName
  fingerprint: Text
  floors: dict[str, MeasuredFloor]


def read(path: pathlib.Path) -> Floors:
  """Returns the record in `path`, which is named like its task.

  Raises:
    UserError: it is not a sound record; names the file and the field.
  """
  kept = record.read(path, Floors.model_validate, 'floors')
  if kept.task != path.stem:
    raise UserError(f'{path} holds the floors of {kept.task!r}: rename it to '
                    f'{kept.task}.json or make it again.')
  return kept


def of_data(task: tasks.Task, data: Prepared,
            records: pathlib.Path = measured.RECORDS) -> dict[str, float]:
  """Floors on this very data: name -> accuracy, a fraction.

  Those that cost no time are computed; the others are read from the committed
  record of `python -m data_prep --floors`, if it is of the same data.

  Raises:
    UserError: the record is damaged.
  """
  floors = measured.quick(task.name, data.splits)
  path = records / f'{task.name}.json'
  kept = read(path) if path.exists() else None
  if kept and kept.fingerprint == data.fingerprint:
    floors |= {name: floor.accuracy for name, floor in kept.floors.items()}
  return floors
