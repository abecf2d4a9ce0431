"""Records of the baselines of a task: scores without a neural network."""

import pathlib
from typing import Annotated

import pydantic
from pydantic import Field

from data_prep import baselines
from lra import bits, tasks
from lra.data.prepared import Prepared
from lra.records import record
from lra.records.record import Count, File, Fraction, Record, TaskName, Text
from lra.records.result import Parts


class MeasuredFloor(Record):
  """The score of one method.

  Attributes:
    accuracy: a fraction.
    how: how it works.
    examples: number in test; None in old records and for probes.
    correct: `lra.bits` of the right answers, None if `examples` is.
    parts: see `result.ClassificationScores`.
  """
  accuracy: Fraction
  how: Text
  examples: Count | None = None
  correct: str | None = None
  parts: Parts = {}

  @pydantic.model_validator(mode='after')
  def _counts_agree(self):
    if (self.examples is None) != (self.correct is None):
      raise ValueError("it has one of 'examples' and 'correct', not both")
    if self.correct is not None:
      right = int(bits.unpack(self.correct, self.examples).sum())
      if right != round(self.accuracy * self.examples):
        raise ValueError(
            f"field 'correct' has {right} right answers, which is not the "
            'accuracy')
    return self


class Floors(File):
  """The baselines of a task, measured on the data with this fingerprint.

  Attributes:
    origin: origin of the data; None in old records.
  """
  task: TaskName
  fingerprint: Text
  origin: Text | None = None
  floors: Annotated[
      dict[Text, MeasuredFloor], Field(max_length=record.MAX_FLOORS)]


def read(path: pathlib.Path) -> Floors:
  """Returns the record in `path`, which is named like its task.

  Raises:
    Unsound: it is not a valid record; names the file and the field.
  """
  kept = record.read(path, Floors.model_validate, 'floors')
  if kept.task != path.stem:
    raise record.Unsound(path, 'floors', (
        f'it has the floors of {kept.task} and should be {kept.task}.json'))
  return kept


def of_data(task: tasks.Task, data: Prepared,
            records: pathlib.Path = baselines.RECORDS) -> dict[str, float]:
  """Returns baselines on exactly these data: name -> accuracy, a fraction.

  Fast ones are computed. The others are read from the committed record of
  `python -m data_prep --floors` if it is of the same data.

  Raises:
    UserError: the record is damaged.
  """
  floors = baselines.quick(task.name, data.splits)
  path = records / f'{task.name}.json'
  kept = read(path) if path.exists() else None
  if kept and kept.fingerprint == data.fingerprint:
    floors |= {name: floor.accuracy for name, floor in kept.floors.items()}
  return floors
