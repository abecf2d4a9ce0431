"""Formats numbers and short texts for pages, the same in every locale."""

import math
import unicodedata
from collections.abc import Collection, Iterable, Sequence

NONE = '–'
# Categories of Unicode: line ends and controls become a blank; invisible
# characters and surrogates are left out.
_BLANK = ('Cc', 'Zl', 'Zp')
_NOTHING = ('Cf', 'Cs')


def plain(text: str, most: int = 300) -> str:
  """Returns `text` as one line of at most `most` visible letters."""
  text = text[:4 * most]
  if not (text.isascii() and text.isprintable()):
    text = ''.join(map(_visible, text))
  text = ' '.join(text.split())
  return text if len(text) <= most else text[:most - 1] + '…'


def escaped(text: str) -> str:
  """Returns `text` for a terminal, which would obey ESC [2J and the like."""
  return ''.join(
      letter.encode('unicode_escape').decode() if letter not in '\n\t' and (
          unicodedata.category(letter) in (*_BLANK, *_NOTHING)) else letter
      for letter in text) if not text.isprintable() else text


def shortened(text: str, longest: int = 1000) -> str:
  """Returns a text without its middle if it is longer than `longest`."""
  half = longest // 2
  return text if len(text) <= longest else f'{text[:half]} ... {text[-half:]}'


def _visible(letter):
  kind = unicodedata.category(letter)
  if kind in _BLANK:
    return ' '
  # The last two characters of each Unicode plane are forbidden in XML.
  return '' if kind in _NOTHING or ord(letter) & 0xFFFE == 0xFFFE else letter


def percent(fraction: float | None, after: int = 2) -> str:
  return NONE if fraction is None else f'{100 * fraction:.{after}f}'


def digits(low: float, high: float) -> int:
  """Returns 1 decimal if half an interval is a point or more, else 2."""
  return 1 if 50 * (high - low) >= 1 else 2


def points(difference: float | None, after: int = 2) -> str:
  return NONE if difference is None else f'{100 * difference:+.{after}f}'


def ratio(number: float | None) -> str:
  return NONE if number is None else f'{number:.2f}'


def count(number: int | None) -> str:
  return NONE if number is None else f'{number:,}'


def ranges(numbers: Iterable[int]) -> str:
  """Formats rising numbers, with consecutive ones as ranges: 1–3, 5."""
  runs = []
  for number in numbers:
    if runs and number == runs[-1][1] + 1:
      runs[-1][1] = number
    else:
      runs.append([number, number])
  return ', '.join(f'{a}–{b}' if a < b else f'{a}' for a, b in runs)


def enumerated(names: Sequence[str]) -> str:
  """Joins names to `a, b and c`."""
  *first, last = names
  return f'{", ".join(first)} and {last}' if first else last


def gib(num_bytes: float | None) -> str:
  return NONE if num_bytes is None else f'{num_bytes / 2**30:.2f}'


def decimals(number: float | None) -> str:
  """Formats a number with four digits after the point, fewer if large."""
  if number is None:
    return NONE
  return f'{number:.4f}' if number < 1e6 else f'{number:.3g}'


def significant(number: float) -> str:
  """Formats a number with four significant digits, an integer with all."""
  if isinstance(number, int) or number == 0 or not math.isfinite(number):
    return f'{number:,}'
  digits_after = max(0, 3 - math.floor(math.log10(abs(number))))
  return f'{number:,.{digits_after}f}'


def quantity(number: float | None) -> str:
  if number is None:
    return NONE
  for limit, digits in ((100, 0), (10, 1), (1, 2)):
    if number >= limit:
      return f'{number:,.{digits}f}'
  return f'{number:.3f}'


def aligned(rows: Sequence[Sequence[str]],
            right: Collection[int] = ()) -> list[str]:
  """Returns rows of cells as lines of text; columns `right` are right-aligned.
  """
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return ['  '.join(
      cell.rjust(width) if i in right else cell.ljust(width)
      for i, (cell, width) in enumerate(zip(row, widths, strict=True))
  ).rstrip() for row in rows]
