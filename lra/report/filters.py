"""What the filters of the page for browsers choose from, and ask of an item."""

from collections.abc import Callable
from typing import Any

from lra.report import catalogue, rows
from lra.report.content import Content
from lra.report.makeup import MadeOf
from lra.report.overview import Best, Line
from lra.report.published import Compared, Published
from lra.report.row import Row


def asker() -> Callable[[Any], dict[str, str]]:
  """Returns what says of an item of a table what the filters ask of it.

  That is a value for each filter that it falls under; none for an item that
  every choice shows.
  """
  families = {entry.name: entry.family for entry in catalogue.read()}
  return lambda item: _about(item, families)


def _about(item, families):
  if isinstance(item, Best):
    row = item.row
    return {'task': item.board.task.name, **(_about(row, {}) if row else {})}
  if isinstance(item, (Compared, MadeOf)):
    return _about(item.row, {}) if item.row else {}
  if isinstance(item, Row):
    return {'task': item.task, 'model': item.model, 'family': item.family,
            'protocol': item.protocol}
  if isinstance(item, Line) and not item.is_floor:
    return {'model': item.model, 'protocol': item.protocol,
            'family': families.get(item.model, rows.OTHER)}
  if isinstance(item, Published):
    return {'model': item.model, 'protocol': item.protocol,
            'family': families.get(item.here, rows.OTHER)}
  return {}


def choices(found: Content) -> dict[str, list[tuple[str, str]]]:
  """Filter -> its choices, (value, title)."""
  shown = [row for board in found.boards for row in board.rows]
  families = {row.family for row in shown}
  protocols = {row.protocol for row in shown}
  protocols |= {paper.protocol for paper in found.papers}
  return {
      'task': [(b.task.name, b.task.title) for b in found.boards if b.rows],
      'family': [(name, name) for name in sorted(families)],
      'protocol': [(name, name) for name in sorted(protocols)]}
