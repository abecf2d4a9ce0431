"""Describes a config: every field with its value, its meaning and its range."""

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
  """Returns the text of --print_config, for a config without references.

  For each field it has a line `name = value` and below it, indented, meaning
  and range. The arguments of the mixer come last.
  """
  meanings = {name: describe(info) for name, info in FIELDS.items()}
  for name, meaning in arguments(models.mixer(config.model.name)).items():
    meanings.setdefault(f'model.{name}', meaning)
  values, order = identity.flatten(config.to_dict()), list(meanings)
  lines = []
  for name in sorted(values, key=order.index):
    lines += [f'{name} = {values[name]!r}', *textwrap.wrap(
        meanings[name], _WIDTH, initial_indent='    ', subsequent_indent='    ',
        break_long_words=False, break_on_hyphens=False)]
  return '\n'.join(lines)


def describe(info: FieldInfo, meaning: str = '') -> str:
  """Returns the meaning of a field, and the values that it may have."""
  return ' '.join(filter(None, (info.description or meaning, limits(info))))


def limits(info: FieldInfo) -> str:
  """Returns the range or choices of a field as a sentence, or ''."""
  if may := choices(info):
    return f'One of {", ".join(str(one) or "empty" for one in may)}.'
  words = ' and '.join(f'{word} {limit:g}' for word, limit in
                       bounds(info).items() if limit not in _NO_LIMIT)
  return words and f'{words[0].upper()}{words[1:]}.'


def arguments(mixer: type) -> dict[str, str]:
  """Returns {argument: meaning and range} for a mixer and its base classes.

  The meanings are those under "Attributes:" in the docstrings. The values of a
  tuple of the mixer's file replace its name, if it is in capitals and
  backticks.
  """
  file, meanings = sys.modules[mixer.__module__], {}
  for cls in reversed(mixer.__mro__):
    _, _, section = (cls.__dict__.get('__doc__') or '').partition('Attributes:')
    for names, meaning in re.findall(
        r'^ {4}(\w+(?:, \w+)*): (.*(?:\n {6}.*)*)',
        re.split(r'\n\n', section, maxsplit=1)[0], re.MULTILINE):
      meaning = re.sub('`([A-Z_]+)`', functools.partial(_value, file),
                       ' '.join(meaning.split()).rstrip('.'))
      meanings |= dict.fromkeys(
          names.split(', '), f'{meaning[0].upper()}{meaning[1:]}.')
  return {name: describe(info, meanings.get(name, ''))
          for name, info in check.arguments(mixer).model_fields.items()}


def _value(file, match):
  value = (file.ABOUT.kernels if match[1] == 'KERNELS' else
           getattr(file, match[1], match[0]))
  return ', '.join(value) if isinstance(value, tuple) else str(value)
