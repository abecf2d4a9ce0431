"""Markdown: tables and code spans."""

from collections.abc import Container, Iterable, Sequence

from lra.report.formats import NONE


def table(header: Sequence[str], rows: Iterable[Sequence[str]],
          right: Container[str] = ()) -> str:
  """A table.

  Args:
    header: the names of the columns.
    rows: a text for each column; '' is shown as `NONE`.
    right: names of the columns that are aligned to the right.
  """
  marks = ['--:' if name in right else ':--' for name in header]
  lines = [header, marks, *([escape(cell) for cell in row] for row in rows)]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


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


def strong(text: str) -> str:
  """`text` in bold."""
  return f'**{text}**' if text else ''
