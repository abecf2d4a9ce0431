"""Prints a config: every field with its value, its meaning and its range."""

import dataclasses
import sys
import textwrap

from lra import models
from lra.run import check
from lra.schema import identity
from lra.schema.fields import COUNT, FIELDS, LARGEST, MANY, Field

_WIDTH = 76
# Limits of the machine, not of the field: they are not printed.
_NO_LIMIT = (COUNT, -COUNT, MANY, LARGEST)


def text(config) -> str:
  """Returns every field of a config as the text that --print_config prints.

  Args:
    config: a config without references.

  Returns:
    For each field a line `name = value` and below it, indented, its meaning
    and range. The arguments of the mixer come last.
  """
  meanings = {
      **{name: describe(field) for name, field in FIELDS.items()},
      **{f'model.{name}': meaning for name, meaning in arguments(
          models.mixer(config.model.name)).items()
         if f'model.{name}' not in FIELDS}}
  values = identity.flatten(config.to_dict())
  lines = []
  for name in sorted(values, key=list(meanings).index):
    lines += [f'{name} = {values[name]!r}', *textwrap.wrap(
        meanings[name], _WIDTH, initial_indent='    ', subsequent_indent='    ',
        break_long_words=False, break_on_hyphens=False)]
  return '\n'.join(lines)


def describe(field: Field) -> str:
  """Returns the meaning of a field, and the values that it may have."""
  return ' '.join(filter(None, (field.doc, limits(field))))


def limits(field: Field) -> str:
  """Returns the range or choices of a field as a sentence; '' if it has none.
  """
  if field.choices:
    shown = [str(choice) or 'empty' for choice in field.choices]
    return f'One of {", ".join(shown)}.'
  words = ' and '.join(
      f'{word} {value:g}' for word, value in (
          ('at least', field.low), ('above', field.above),
          ('at most', field.high), ('below', field.below))
      if value is not None and value not in _NO_LIMIT)
  return words and f'{words[0].upper()}{words[1:]}.'


def arguments(mixer: type) -> dict[str, str]:
  """Returns {argument: meaning and range} for a mixer.

  The meaning is the one that `lra.schema.fields.argument` was given, for a new
  default in a subclass that of the base class.
  """
  about = getattr(sys.modules[mixer.__module__], 'ABOUT', None)
  meanings = {'kernel': f"'auto' or one of {', '.join(about.kernels)}."} if (
      about and about.kernels) else {}
  for cls in reversed(mixer.__mro__):
    meanings |= {
        name: field.metadata['doc']
        for name, field in getattr(cls, '__dataclass_fields__', {}).items()
        if field.metadata.get('doc')}
  found = {}
  for argument in dataclasses.fields(mixer):
    declared = check.declared_field(argument)
    found[argument.name] = ' '.join(filter(None, (
        meanings.get(argument.name), declared and limits(declared))))
  return found
