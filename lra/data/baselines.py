"""Records of the baselines of a task: scores without a neural network.

The JSON files call the baselines `floors`.
"""

import pathlib

import pydantic

from lra.core import bits, paths, tasks
from lra.data_prep import baselines as measured
from lra.data_prep.content import Content
from lra.schema import record
from lra.schema.scores import Parts


class Method(record.Record):
  """The score of one method."""
  accuracy: record.Fraction
  how: record.Text = record.field('How the method works.')
  examples: record.Count | None = record.field(
      'Number of test examples; None in old records and for probes.', None)
  correct: str | None = record.field(
      '`lra.core.bits` of the right answers; None if `examples` is None.', None)
  parts: Parts = {}

  @pydantic.model_validator(mode='after')
  def _counts_agree(self):
    if (self.examples is None) != (self.correct is None):
      raise ValueError("it has one of 'examples' and 'correct', not both")
    if self.correct is not None and self.examples is not None:
      right = int(bits.unpack(self.correct, self.examples).sum())
      if right != round(self.accuracy * self.examples):
        raise ValueError(
            f"field 'correct' has {right} right answers, which is not the "
            'accuracy')
    return self


class Baselines(record.File):
  """The methods that were measured on the data with this fingerprint."""
  task: record.TaskName
  fingerprint: record.Text
  origin: record.Text | None = record.field(
      'Origin of the data; None in old records.', None)
  methods: dict[record.Text, Method] = record.field(
      'Name -> its score.', alias='floors', max_length=record.MOST)


def read(path: pathlib.Path) -> Baselines:
  """Returns the record in `path`, which is named like its task."""
  kept = record.read_record(path, Baselines.model_validate, 'baselines')
  if kept.task != path.stem:
    raise record.InvalidRecord(path, 'baselines', (
        f'it has the baselines of {kept.task} and should be {kept.task}.json'))
  return kept


def of_data(task: tasks.Task, data: Content,
            records: pathlib.Path | None = None) -> dict[str, float]:
  """Returns baselines on exactly these data: name -> accuracy, a fraction.

  Fast baselines are computed. The others are read from the record of
  `run_lra.py data --baselines` if it was made on the same data.
  """
  found = measured.quick(task.name, data.splits)
  folders = [records] if records else [
      paths.results() / 'floors', measured.RECORDS]
  path = next((path for folder in folders
               if (path := folder / f'{task.name}.json').exists()), None)
  kept = path and read(path)
  if kept and kept.fingerprint == data.fingerprint:
    found |= {name: method.accuracy for name, method in kept.methods.items()}
  return found
