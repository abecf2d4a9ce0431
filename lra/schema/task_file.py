"""The file task.json of an exported model, which says what its task is.

So a model can be loaded where its task is unknown, to predict.
"""

import pathlib
from typing import Annotated

from pydantic import Field

from lra.core import tasks
from lra.core.errors import UserError
from lra.data_prep import encode
from lra.schema import record
from lra.schema.fields import Size

NAME = 'task.json'


class TaskFile(record.File):
  """The fields of `tasks.Task` that a model needs, and how to encode inputs."""
  name: record.Name
  dataset: record.Name
  variant: record.Name
  seq_len: Size
  vocab_size: Annotated[int, Field(ge=2, le=2**15 - 1)]
  num_classes: Size
  dual: bool = False
  image: bool = False
  probe: bool = False
  compressed: bool = False
  classes: list[record.Text] = record.field('The names of classes 0, 1, ...')
  ids: record.Text = record.field('How an example becomes ids.', '')

  @property
  def task(self) -> tasks.Task:
    values = {name: getattr(self, name) for name in _SHARED}
    return tasks.Task(**values, classes=tuple(self.classes))


_SHARED = [name for name in TaskFile.model_fields
           if name not in ('classes', 'ids')]


def content(task: tasks.Task, ids: str) -> dict:
  """Returns the JSON of the file of a task; `ids` are those of `encode.form`.
  """
  return {**{name: getattr(task, name) for name in _SHARED},
          'classes': list(encode.names(task)), 'ids': ids}


def adopt(folder: pathlib.Path) -> None:
  """Makes the task of an exported folder known to this process."""
  path = folder / NAME
  if not path.exists():
    return
  kept = record.read_record(path, TaskFile.model_validate, 'task')
  if len(kept.classes) != kept.num_classes:
    raise record.InvalidRecord(path, 'task', (
        f'it names {len(kept.classes)} of {kept.num_classes} classes'))
  ours = tasks.find(kept.name) or tasks.LOADED.setdefault(kept.name, kept.task)
  if any(getattr(ours, name) != getattr(kept, name) for name in _SHARED) or (
      ours.classes not in ((), kept.task.classes)):
    raise UserError(f'{path} describes another {kept.name} than that of this '
                    'program: load it where its task is known.')
