"""Reads the official tables of LRA's Retrieval task as a stream.

`new_aan_pairs.{train,eval,test}.tsv` have five columns: label, two ids and two
texts. They have no header and no quoting. Texts are plain or Python bytes
literals, which are decoded: b'Title\\nWord' has ten bytes here. The code of
Long Range Arena, S4 and Nystromformer keeps the literal's b, quotes and
backslashes, so its examples differ from those made here.

A row repeats its documents' texts, so a file has several gigabytes, of which
each document is kept once, cut short. If a plain text has tabs, any of the
row's tabs may separate the texts. Another row with one of the two documents
shows which one does. So these rows are read after all others.
"""

import ast
import dataclasses
import pathlib
import re

from lra.core.terminal import progress
from lra.data_prep.content import digest
from lra.data_prep.source import bad_row, read_lines

FILES = {'train': 'new_aan_pairs.train.tsv', 'val': 'new_aan_pairs.eval.tsv',
         'test': 'new_aan_pairs.test.tsv'}
ROWS = {'train': 147_086, 'val': 18_090, 'test': 17_437}
_LITERAL = re.compile(
    rb"""b(?:'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+")""", re.DOTALL)
_LABELS = {b'0': 0, b'1': 1, b'0.0': 0, b'1.0': 1}


class Documents:
  """Stores documents by id and text. An id with two texts is two documents.

  `heads` holds the first `cut` bytes of each document. `literals` counts the
  texts that were bytes literals.
  """

  def __init__(self, cut: int):
    self.heads: list[bytes] = []
    self.literals = 0
    self._cut = cut
    self._by_raw: dict[tuple[bytes, bytes], int] = {}
    self._by_head: dict[tuple[bytes, bytes], int] = {}

  def add(self, name: bytes, raw: bytes) -> int:
    """Returns the index in `heads` of the document with this id and text.

    Raises:
      ValueError: the text is a bytes literal that Python cannot read.
    """
    key = (name, digest(raw))
    if key not in self._by_raw:
      text = _text(raw)
      self.literals += text is not raw
      head = text[:self._cut]
      number = self._by_head.setdefault((name, digest(head)), len(self.heads))
      if number == len(self.heads):
        self.heads.append(head)
      self._by_raw[key] = number
    return self._by_raw[key]

  def knows(self, name: bytes, raw: bytes) -> bool:
    return (name, digest(raw)) in self._by_raw

  def other_texts(self) -> int:
    """Counts the documents with the id of an earlier document."""
    return len(self.heads) - len({name for name, _ in self._by_head})


@dataclasses.dataclass
class _Table:
  """A table of one split.

  `found` maps a line to (label, pair of document numbers). `waiting` maps one
  whose separating tab is unknown to its number of columns. `unclosed` is the
  first line with a bytes literal that has no end, or 0.
  """
  path: pathlib.Path
  found: dict = dataclasses.field(default_factory=dict)
  waiting: dict = dataclasses.field(default_factory=dict)
  unclosed: int = 0

  def scan(self, documents):
    """Reads all rows, or again those that are `waiting`."""
    plain, again = self.path.suffix != '.gz', set(self.waiting)
    with progress(
        desc=f'reading {self.path.name}', unit='B', unit_scale=True,
        total=self.path.stat().st_size if plain else None) as bar:
      for line, row in read_lines(self.path):
        bar.update(len(row) + 1)
        if again and line not in again:
          continue
        try:
          self._take(documents, line, row)
        except ValueError as e:
          raise bad_row(self.path, line, e) from None
    if not self.found and not self.waiting:
      raise bad_row(self.path, 1, 'no rows')

  def _take(self, documents, line, row):
    label, first, second, texts = _columns(row)
    texts = _part(documents, first, second, texts)
    if texts is None:
      self.waiting[line] = row.count(b'\t') + 1
      return
    if any(_opens(text) and not _is_literal(text) for text in texts):
      self.unclosed = self.unclosed or line
    self.found[line] = label, (documents.add(first, texts[0]),
                               documents.add(second, texts[1]))
    self.waiting.pop(line, None)


def read(paths: dict[str, pathlib.Path], cut: int):
  """Reads the table of each split, and keeps `cut` bytes of each document.

  Returns `Documents`, and a dict from split to (labels, pairs of document
  numbers).
  """
  documents = Documents(cut)
  tables = {split: _Table(path) for split, path in paths.items()}
  for table in tables.values():
    table.scan(documents)
  while unclear := [table for table in tables.values() if table.waiting]:
    before = sum(len(table.waiting) for table in unclear)
    for table in unclear:
      table.scan(documents)
    if sum(len(table.waiting) for table in unclear) == before:
      line, columns = next(iter(unclear[0].waiting.items()))
      raise bad_row(unclear[0].path, line, f'{columns} columns instead of 5, '
                    'and no other row shows which tab separates the two texts')
  for table in tables.values():
    if table.unclosed and documents.literals:
      raise bad_row(table.path, table.unclosed,
                    'a bytes literal without its closing quote')
  rows = {split: [table.found[line] for line in sorted(table.found)]
          for split, table in tables.items()}
  return documents, {split: tuple(zip(*pairs, strict=True))
                     for split, pairs in rows.items()}


def _columns(row):
  columns = row.split(b'\t', 3)
  if len(columns) < 4 or b'\t' not in columns[3]:
    raise ValueError(f'{row.count(9) + 1} columns instead of 5')
  label, first, second, texts = columns
  if label not in _LABELS:
    raise ValueError(f'the label is {label[:20]!r} instead of 0 or 1')
  if not first or not second:
    raise ValueError('a document without an id')
  return _LABELS[label], first, second, texts


def _part(documents, first, second, texts):
  """Returns the two texts; None if the tab between them is unknown so far."""
  pieces = texts.split(b'\t')
  if len(pieces) == 2:
    return pieces
  agreeing = {1: [], 2: []}
  for i in range(1, len(pieces)):
    parted = b'\t'.join(pieces[:i]), b'\t'.join(pieces[i:])
    known = documents.knows(first, parted[0]) + documents.knows(
        second, parted[1])
    if known:
      agreeing[known].append(parted)
  candidates = agreeing[2] or agreeing[1]
  return candidates[0] if len(candidates) == 1 else None


def _opens(raw):
  return raw[:2] in (b"b'", b'b"')


def _is_literal(raw):
  return _opens(raw) and raw[-1:] == raw[1:2] and len(raw) > 2


def _text(raw):
  if _is_literal(raw):
    try:
      if not _LITERAL.fullmatch(raw):
        raise ValueError('an unescaped quote')
      return ast.literal_eval(raw.decode('utf-8'))
    except (SyntaxError, ValueError) as e:
      raise ValueError(f'a bytes literal that cannot be read ({e})') from None
  return raw
