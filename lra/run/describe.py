"""Prints a config: every field with its value, its meaning and its range."""

import functools
import re
import sys
import textwrap

from pydantic.fields import FieldInfo

from lra import models
from lra.run import check
from lra.schema import identity
from lra.schema.fields import COUNT, FIELDS, LARGEST, MANY, bounds, choices

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


def describe(info: FieldInfo) -> str:
  """Returns the meaning of a field, and the values that it may have."""
  return ' '.join(filter(None, (info.description, limits(info))))


def limits(info: FieldInfo) -> str:
  """Returns the range or choices of a field as a sentence; '' if it has none.
  """
  if may := choices(info):
    return f'One of {", ".join(str(one) or "empty" for one in may)}.'
  words = ' and '.join(f'{word} {limit:g}' for word, limit in
                       bounds(info).items() if limit not in _NO_LIMIT)
  return words and f'{words[0].upper()}{words[1:]}.'


def arguments(mixer: type) -> dict[str, str]:
  """Returns {argument: meaning and range} for a mixer and its base classes.

  The meanings are those under "Attributes:" in the docstrings.
  """
  meanings = {}
  for cls in reversed(mixer.__mro__):
    meanings.update(_attributes(cls, mixer))
  return {name: ' '.join(filter(None, (meanings.get(name), limits(info))))
          for name, info in check.arguments(mixer).model_fields.items()}


def _attributes(cls, mixer):
  """Returns {name: meaning} of the section "Attributes:" of a class.

  If a meaning names a tuple of the mixer's file, in capitals and backticks,
  the values of the tuple replace the name.
  """
  _, _, section = (cls.__dict__.get('__doc__') or '').partition('Attributes:')
  section = re.split(r'\n\n', section, maxsplit=1)[0]
  found = {}
  for names, meaning in re.findall(
      r'^ {4}(\w+(?:, \w+)*): (.*(?:\n {6}.*)*)', section, re.MULTILINE):
    for name in names.split(', '):
      meaning = ' '.join(meaning.split()).rstrip('.')
      meaning = re.sub(
          '`([A-Z_]+)`', functools.partial(_constant, mixer), meaning)
      found[name] = f'{meaning[0].upper()}{meaning[1:]}.'
  return found


def _constant(mixer, match):
  """Returns the values of a tuple that the mixer's file names in capitals."""
  value = getattr(sys.modules[mixer.__module__], match[1], match[0])
  return ', '.join(value) if isinstance(value, tuple) else str(value)
