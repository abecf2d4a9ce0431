"""Records: JSON files of a fixed form, refused where they do not have it.

The common part of `result` and `floors`: strict types, and one sentence that
names the file and the field.
"""

import pathlib
import reprlib
from collections.abc import Callable
from typing import Annotated, TypeVar

import pydantic
from pydantic import AfterValidator, Field

from lra import files, tasks
from lra.errors import UserError


class Record(pydantic.BaseModel):
  """An object of JSON with described fields; others are kept as they are.

  Nothing is converted: '3' and True are no numbers, and nan and inf neither.
  """
  model_config = pydantic.ConfigDict(
      strict=True, frozen=True, extra='allow', allow_inf_nan=False)


def _not_blank(text):
  if not text.strip():
    raise ValueError('it should say something')
  return text


def _known(task):
  if task not in tasks.TASKS:
    raise ValueError(f'it should be one of {", ".join(tasks.TASKS)}')
  return task


Text = Annotated[str, AfterValidator(_not_blank)]
TaskName = Annotated[str, AfterValidator(_known)]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]

R = TypeVar('R', bound=Record)


def read(path: pathlib.Path, parse: Callable[[object], R], kind: str) -> R:
  """Returns the record in a file.

  Args:
    path: a JSON file.
    parse: makes a record of its content, or raises a ValidationError.
    kind: what it is a record of, for the error.

  Raises:
    UserError: the file is not such a record; names the file and the field.
  """
  try:
    return parse(files.read_json(path))
  except pydantic.ValidationError as error:
    raise UserError(
        f'{path} is not a sound {kind} record ({reason(error)}): restore it, '
        'make it again or delete it, then repeat the command.') from error


def reason(error: pydantic.ValidationError) -> str:
  """What is wrong first, in a few words that name the field."""
  first = error.errors(include_url=False)[0]
  field = f"field '{'.'.join(map(str, first['loc']))}'"
  what = first['msg'].removeprefix('Value error, ')
  what = what.replace('Input should', 'it should')
  if first['type'] == 'model_type':
    what = 'it should be a JSON object'
  if first['type'] == 'missing':
    return f'{field} is missing'
  if not first['loc']:
    return what
  if isinstance(first['input'], dict | list):
    return f'{field}: {what}'
  return f'{field} is {reprlib.repr(first["input"])}: {what}'
