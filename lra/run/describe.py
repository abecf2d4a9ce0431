"""Describes a config: every field with its value, its meaning and its range."""

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
  """Returns the text of --print_config: each field, its value and its meaning.
  """
  own = check.arguments(models.mixer(config.model.name)).model_fields
  known = {f'model.{name}': info for name, info in own.items()} | FIELDS
  values, lines = identity.flatten(config.to_dict()), []
  for name in sorted(values, key=[*FIELDS, *known].index):
    lines += [f'{name} = {values[name]!r}', *textwrap.wrap(
        describe(known[name]), _WIDTH, initial_indent='    ',
        subsequent_indent='    ', break_long_words=False,
        break_on_hyphens=False)]
  return '\n'.join(lines)


def describe(info: FieldInfo) -> str:
  return ' '.join(filter(None, (info.description, limits(info))))


def limits(info: FieldInfo) -> str:
  """Returns the range or choices of a field as a sentence, or ''."""
  if may := choices(info):
    return f'One of {", ".join(str(one) or "empty" for one in may)}.'
  words = ' and '.join(f'{word} {limit:g}' for word, limit in
                       bounds(info).items() if limit not in _NO_LIMIT)
  return words and f'{words[0].upper()}{words[1:]}.'
