"""Markdown: tables, code spans, and text that stays text.

A record may hold any text. Here it becomes inert in any reader of the page: no
markup, no HTML, no link, and no end of a line.
"""

import re
from collections.abc import Container, Iterable, Sequence

from lra.core.formats import NONE, plain

# Most cells match this: none of these letters is ever markup.
_HARMLESS = re.compile(r'[A-Za-z0-9 .,%±–-]*')


class Markup(str):
  """Text that is markdown already."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]],
          right: Container[str] = ()) -> str:
  """Returns a table with the columns `right` aligned to the right.

  Names and cells are escaped unless they are `Markup`; '' is shown as `NONE`.
  """
  marks = ['--:' if name in right else ':--' for name in header]
  lines = [[_cell(name) for name in header], marks,
           *([_cell(cell) for cell in row] for row in rows)]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def _cell(text):
  text = text if isinstance(text, Markup) else escape(text)
  return ' '.join(text.split()).replace('|', '\\|') or NONE


def escape(text: str) -> Markup:
  """Escapes `text` as markdown on one line, at most 300 letters."""
  text = plain(text)
  if _HARMLESS.fullmatch(text) and 'www.' not in text.lower():
    return Markup(text)
  text = re.sub(r'([\\`*\[\]~$])', r'\\\1', text)
  # An underscore between letters is no markup, and names are full of them.
  text = re.sub(r'_(?![^\W_])|(?<![^\W_])_', r'\\_', text)
  for mark, entity in (('&', '&amp;'), ('<', '&lt;'), ('>', '&gt;')):
    text = text.replace(mark, entity)
  # GitHub makes links of addresses.
  text = re.sub(r'://', r':\\//', text)
  return Markup(re.sub(r'\b(www)\.', r'\1\\.', text, flags=re.IGNORECASE))


def code(text: str, most: int = 1000) -> Markup:
  """Returns `text` as a code span, at most `most` letters, backticks or not."""
  text = plain(text, most)
  if not text:
    return Markup()
  if '`' not in text:
    return Markup(f'`{text}`')
  fence = '`' * (1 + max(map(len, re.findall('`+', text))))
  return Markup(f'{fence} {text} {fence}')


def strong(text: str) -> Markup:
  """Returns `text` in bold."""
  return Markup(f'**{escape(text)}**' if text else '')


def link(text: str, address: str) -> Markup:
  """Returns `text` as a link to an address that needs no escape."""
  return Markup(f'[{escape(text)}]({address})')
