"""Records: JSON files of a fixed form, such as the result of a run.

Values are bounded, far beyond those of any real run. An error names the file
and the field. JSON calls the baselines `floors`.
"""

import math
import pathlib
import re
import reprlib
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic import AfterValidator, Field
from pydantic_core import PydanticUndefined

from lra.core import files, foreign, tasks
from lra.core.errors import UserError
from lra.core.formats import plain

MAX_BYTES = 2**20  # a record has some kilobytes
MAX_DEPTH = 20
MOST = 32  # most baselines, properties of examples, values of one, rules
_SURROGATE = re.compile('[\ud800-\udfff]')


class InvalidRecord(UserError):
  """Raised for an invalid record; `why` is the reason, without the file."""

  def __init__(self, path: pathlib.Path, kind: str, why: str):
    super().__init__(
        f'{plain(str(path))} is not a valid {kind} record ({why}): restore it, '
        'make it again or delete it, then repeat the command.')
    self.why = why


class Record(pydantic.BaseModel):
  """A JSON object with described fields; other fields are kept unchanged.

  Nothing is converted: '3', True, nan and inf are no numbers.
  """
  model_config = pydantic.ConfigDict(
      strict=True, frozen=True, extra='allow', allow_inf_nan=False)


def field(doc: str, default: Any = PydanticUndefined, **more) -> Any:
  """Declares a field with its meaning; without a default it is required."""
  return Field(default, description=doc, **more)


class File(Record):
  """A record with a file of its own; all its content can be written as JSON."""

  @pydantic.model_validator(mode='before')
  @classmethod
  def _can_be_written(cls, fields):
    level = [('', fields)]
    for _ in range(MAX_DEPTH):
      level = [inner for item in level for inner in _inside(*item)
               if type(inner[1]) is not int]  # most values are counts
      if not level:
        return fields
    raise ValueError(f'it is nested more than {MAX_DEPTH} deep')


def _inside(name, value):
  """Returns the (name, value) pairs in a value; ValueError if it is no JSON."""
  if isinstance(value, dict):
    parts = [(f'{name}.{key}'.lstrip('.')[:100], inner)
             for key, inner in value.items()]
    return parts + [(name, key) for key in value if not str(key).isascii()]
  if isinstance(value, list | tuple):
    return [(name, inner) for inner in value]
  if (isinstance(value, float) and not math.isfinite(value)) or (
      isinstance(value, str) and not value.isascii()
      and _SURROGATE.search(value)):
    raise ValueError(
        f"field '{plain(name, most=100)}' is {plain(reprlib.repr(value))}: it "
        'cannot be stored as JSON')
  return ()


def _that(holds: Callable[[str], object], sentence: str) -> AfterValidator:
  def check(text):
    if not holds(text):
      raise ValueError(f'it should {sentence}')
    return text
  return AfterValidator(check)


Text = Annotated[str, Field(max_length=1000), _that(plain, 'not be blank')]
# Part of the name of a file.
Name = Annotated[str, _that(re.compile('[a-z0-9_]{1,64}').fullmatch,
                            'be of a-z, 0-9 and _, 64 at most')]
Digest = Annotated[str, _that(re.compile('[0-9a-f]{64}').fullmatch,
                              'be 64 hexadecimal digits')]
# Tokens of a sequence: a number, a range, or tokens and pairs.
Length = Annotated[str, _that(
    re.compile('[0-9]{1,9}([-/][0-9]{1,9})?').fullmatch,
    'be like 64, 40-256 or 512/128')]
TaskName = Annotated[str, _that(tasks.find, (
    f'be one of {", ".join(tasks.TASKS)}, or an own task with its task.json '
    'beside the record'))]
Count = Annotated[int, Field(ge=0, le=10**18)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
Fraction = Annotated[float, Field(ge=0, le=1)]

R = TypeVar('R', bound=Record)


def read_record(path: pathlib.Path, parse: Callable[[object], R],
                kind: str) -> R:
  try:
    return parse(files.read_json(path, MAX_BYTES))
  except pydantic.ValidationError as error:
    why, cause = reason(error), error
  except UserError as error:
    cause = error.__cause__ or error
    why = f'it is damaged: {foreign.why(cause)}'
  except RecursionError as error:
    why, cause = f'it is nested more than {MAX_DEPTH} deep', error
  except ValueError as error:
    why, cause = str(error), error
  raise InvalidRecord(path, kind, why) from cause


def reason(error: pydantic.ValidationError) -> str:
  """Returns the first fault, in a few words that name the field."""
  first = error.errors(include_url=False)[0]
  field = f"field '{plain('.'.join(map(str, first['loc'])), most=100)}'"
  what = first['msg'].removeprefix('Value error, ')
  what = plain(what.replace('Input should', 'it should'))
  if first['type'] == 'model_type':
    what = 'it should be a JSON object'
  if first['type'] == 'missing':
    return f'{field} is missing'
  if not first['loc']:
    return what
  if isinstance(first['input'], dict | list):
    return f'{field}: {what}'
  return f'{field} is {plain(reprlib.repr(first["input"]))}: {what}'
