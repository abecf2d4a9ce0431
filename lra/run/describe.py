"""Describes a config: every field with its value, its meaning and its range."""

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
  return {name: describe(info, meanings.get(name, ''))
          for name, info in check.arguments(mixer).model_fields.items()}
