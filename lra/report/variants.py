"""Describes the settings in which rows differ."""

import collections
import json
from collections.abc import Iterable

from lra.config import fields, identity
from lra.formats import plain
from lra.report.row import Row

# Most fields in the name of a row, and most letters of a value.
_NAMED = 12
_LETTERS = 60


def name(rows: Iterable[Row]) -> None:
  """Sets the variant of rows: settings that differ from the model's others."""
  families = collections.defaultdict(list)
  for row in rows:
    families[row.task, row.model, row.table].append(row)
  for family in families.values():
    settings = [_described(row) for row in family]
    differing = sorted(name for name in set().union(*settings)
                       if len({s.get(name, 'unset') for s in settings}) > 1)
    # Changes from the protocol have a column of their own.
    changed = set().union(*(row.changes for row in family))
    for row, mine in zip(family, settings, strict=True):
      row.variant = listed(
          f'{plain(name, _LETTERS)}={plain(mine.get(name, "unset"), _LETTERS)}'
          for name in differing if name not in changed)


def _described(row):
  """Returns {field: its value as text} of fields that can differ."""
  values = fields.added(row.model) | identity.experiment(row.runs[0].config)
  return {**{name: shown(value) for name, value in values.items()},
          'data': row.data[:8]}


def shown(value) -> str:
  """Returns a value of a config as text."""
  return value if isinstance(value, str) else json.dumps(value)


def listed(texts) -> str:
  """Joins some texts, with the number of those left out."""
  texts = list(texts)
  more = [f'{len(texts) - _NAMED} more'] if len(texts) > _NAMED else []
  return ', '.join(texts[:_NAMED] + more)


def departures(changes: dict, config: dict) -> str:
  """Describes the settings that differ from the protocol, by field.

  Args:
    changes: {field: the protocol's value}.
    config: the config that has other values.
  """
  ours = identity.flatten(config)
  return listed(
      f'{plain(name, _LETTERS)} {_short_value(ours.get(name, "unset"))} '
      f'instead of {_short_value(value)}'
      for name, value in sorted(changes.items()))


def _short_value(value):
  return plain(shown(value), _LETTERS)
