"""Reads the official tables of LRA's Retrieval task as a stream.

`new_aan_pairs.{train,eval,test}.tsv` have five columns: label, two ids and two
texts. They have no header and no quoting. Texts are plain or Python bytes
literals, which are decoded: b'Title\\nWord' has ten bytes here. The code of
Long Range Arena, S4 and Nystromformer keeps the literal's b, quotes and
backslashes, so its examples differ from those made here.

A row repeats its documents' texts, so a file has several gigabytes, of which
each document is kept once, cut short.
"""

import ast
import pathlib
import re
from typing import NamedTuple

from lra.core.terminal import progress
from lra.data_prep.content import digest
from lra.data_prep.source import bad_row, read_lines

FILES = {'train': 'new_aan_pairs.train.tsv', 'val': 'new_aan_pairs.eval.tsv',
         'test': 'new_aan_pairs.test.tsv'}
ROWS = {'train': 147_086, 'val': 18_090, 'test': 17_437}
_LITERAL = re.compile(
    rb"""b(?:'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+")""", re.DOTALL)
_LABELS = {b'0': 0, b'1': 1, b'0.0': 0, b'1.0': 1}


class Tables(NamedTuple):
  heads: list[bytes]  # the documents, cut short
  examples: dict  # split -> (labels, pairs of document numbers)
  literals: bool  # whether texts were bytes literals
  other_texts: int  # documents with the id of an earlier document


def read(paths: dict[str, pathlib.Path], cut: int) -> Tables:
  """Reads the table of each split, and keeps `cut` bytes of each document.

  An id with two texts is two documents.
  """
  numbers, known, examples, literals = {}, {}, {}, False

  def number_of(name, raw):
    nonlocal literals
    key = name, digest(raw)
    if key not in known:
      text = _text(raw)
      literals |= text is not raw
      known[key] = numbers.setdefault((name, text[:cut]), len(numbers))
    return known[key]

  for split, path in paths.items():
    rows = []
    for line, row in progress(
        read_lines(path), desc=f'reading {path.name}', unit=' rows'):
      try:
        label, first, second, *texts = _columns(row)
        rows.append((label, (number_of(first, texts[0]),
                             number_of(second, texts[1]))))
      except ValueError as e:
        raise bad_row(path, line, e) from None
    if not rows:
      raise bad_row(path, 1, 'no rows')
    examples[split] = tuple(zip(*rows, strict=True))
  return Tables([head for _, head in numbers], examples, literals,
                len(numbers) - len({name for name, _ in numbers}))


def _columns(row):
  columns = row.split(b'\t')
  if len(columns) != 5:
    raise ValueError(f'{len(columns)} columns instead of 5')
  label, first, second, *_ = columns
  if label not in _LABELS:
    raise ValueError(f'the label is {label[:20]!r} instead of 0 or 1')
  if not first or not second:
    raise ValueError('a document without an id')
  return _LABELS[label], *columns[1:]


def _text(raw):
  if raw[:2] not in (b"b'", b'b"'):
    return raw
  if not _LITERAL.fullmatch(raw):
    raise ValueError('a bytes literal without its closing quote')
  try:
    return ast.literal_eval(raw.decode())
  except (SyntaxError, ValueError) as e:
    raise ValueError(f'a bytes literal that cannot be read ({e})') from None
