"""Markdown tables and fixed number formats, independent of the locale."""

import re
from collections.abc import Sequence

NONE = '–'


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A table; columns of nothing but numbers are aligned to the right."""
  rows = [[escape(cell) for cell in row] for row in rows]
  marks = ['--:' if all(map(_is_number, column)) else ':--'
           for column in zip(*rows, strict=True)] or [':--'] * len(header)
  return '\n'.join(f'| {" | ".join(line)} |' for line in [header, marks, *rows])


def _is_number(cell):
  """Also several numbers, as in '3.1 / 12' and '4 of 5', and no number."""
  return all(part in (NONE, 'FAIL') or re.fullmatch(r'[-+]?[\d.,]+', part)
             for part in re.split(' / | of ', cell))


def escape(text: str) -> str:
  """Makes `text` one table cell: no bar, no line break, never empty."""
  return ' '.join(text.split()).replace('|', '\\|') or NONE


def code(text: str) -> str:
  """`text` as a code span, whatever backticks it holds."""
  if not text:
    return ''
  if '`' in text:
    return f'`` {text} ``'
  return f'`{text}`'


def percent(fraction: float | None) -> str:
  return NONE if fraction is None else f'{100 * fraction:.2f}'


def points(difference: float | None) -> str:
  """A signed difference of fractions in percentage points."""
  return NONE if difference is None else f'{100 * difference:+.2f}'


def count(number: int | None) -> str:
  return NONE if number is None else f'{number:,}'


def gib(num_bytes: float | None) -> str:
  return NONE if num_bytes is None else f'{num_bytes / 2**30:.2f}'


def quantity(number: float | None) -> str:
  """About three digits, without an exponent."""
  if number is None:
    return NONE
  for limit, digits in ((100, 0), (10, 1), (1, 2)):
    if number >= limit:
      return f'{number:,.{digits}f}'
  return f'{number:.3f}'
