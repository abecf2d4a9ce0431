"""Markdown: tables, code spans, and text that stays text.

What comes from a record may hold anything. Here it becomes inert in whatever
reads the page: no markup, no HTML, no link, and nothing that ends its line.
"""

import re
from collections.abc import Container, Iterable, Sequence

from lra.report.formats import NONE, plain

# Most cells: no letter of these is markup, wherever it stands.
_HARMLESS = re.compile(r'[A-Za-z0-9 .,%±–-]*')


class Markup(str):
  """Text that is markdown already."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]],
          right: Container[str] = ()) -> str:
  """A table.

  Args:
    header: the names of the columns, escaped likewise.
    rows: a text for each column, escaped unless it is `Markup`; '' is shown as
      `NONE`.
    right: names of the columns that are aligned to the right.
  """
  marks = ['--:' if name in right else ':--' for name in header]
  lines = [[_cell(name) for name in header], marks,
           *([_cell(cell) for cell in row] for row in rows)]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def _cell(text):
  text = text if isinstance(text, Markup) else escape(text)
  return ' '.join(text.split()).replace('|', '\\|') or NONE


def escape(text: str) -> Markup:
  """`text` as markdown that shows it, on one line, at most 300 letters."""
  text = plain(text)
  if _HARMLESS.fullmatch(text) and 'www.' not in text.lower():
    return Markup(text)
  text = re.sub(r'([\\`*\[\]~$])', r'\\\1', text)
  # Between letters it is no markup, and names are full of it.
  text = re.sub(r'_(?![^\W_])|(?<![^\W_])_', r'\\_', text)
  for mark, entity in (('&', '&amp;'), ('<', '&lt;'), ('>', '&gt;')):
    text = text.replace(mark, entity)
  # GitHub makes links of addresses.
  text = re.sub(r'://', r':\\//', text)
  return Markup(re.sub(r'\b(www)\.', r'\1\\.', text, flags=re.IGNORECASE))


def code(text: str, most: int = 1000) -> Markup:
  """`text` as a code span of so many letters, whatever backticks it holds."""
  text = plain(text, most)
  if not text:
    return Markup()
  if '`' not in text:
    return Markup(f'`{text}`')
  fence = '`' * (1 + max(map(len, re.findall('`+', text))))
  return Markup(f'{fence} {text} {fence}')


def strong(text: str) -> Markup:
  """`text` in bold."""
  return Markup(f'**{escape(text)}**' if text else '')


def link(text: str, address: str) -> Markup:
  """`text` as a link to an address that is ours."""
  return Markup(f'[{escape(text)}]({address})')
