"""A column of a table, and a table, as data for whatever draws them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Column:
  """One column of a table.

  Attributes:
    name: its heading.
    text: what it says of a row, without any markup; '' for nothing.
    number: whether it is aligned to the right.
    strong: whether what it says of a row should catch the eye.
    value: what rows are sorted by: of a column of numbers a number, None for
      nothing; of others the text itself.
    link: the address, ours, that the text leads to; None for none.
  """
  name: str
  text: Callable[[Any], str]
  number: bool
  strong: Callable[[Any], bool]
  value: Callable[[Any], float | str | None]
  link: Callable[[Any], str] | None = None


@dataclasses.dataclass(frozen=True)
class Table:
  """A table.

  Attributes:
    columns: what it says of each item.
    items: what it has a row of, in order.
    pinned: how many of the first items stay at the top, whatever the order.
  """
  columns: Sequence[Column]
  items: Sequence[Any]
  pinned: int = 0
