"""Own tasks of tables: CSV files with a column of texts and one of labels.

`describe` writes the file of the task, whose `make` calls `splits`.
"""

import codecs
import collections
import csv
import hashlib
import io
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lra.core import files, tasks
from lra.core.errors import UserError, choose
from lra.core.formats import plain
from lra.data_prep import own
from lra.data_prep.content import SPLITS
from lra.data_prep.source import BROKEN, opened

LENGTH = 512  # bytes of a text that are kept, unless told otherwise
_LENGTHS = 64  # the length of a task is a multiple
# Each class has a tenth of its texts in val and in test. All classes together
# have at most so many.
_SHARE = 10
_MOST = {'val': 2000, 'test': 5000}
_DELIMITERS = ',\t;|'
_LONGEST = 2**26  # letters of a field
_SHOWN = 12  # most classes to print
_RARE = 0.05  # a class with fewer texts is said to be rare
_FILE = '''\
"""The task {name}: texts of {tables}. Written by `data --csv`.

See docs/add-a-task.md. SETTINGS has fields that differ from those of text_mini.
"""

from lra.data_prep import table

TITLE = {title!r}
SEQ_LEN = {length}
CLASSES = {classes!r}
SOURCES = {sources!r}
SETTINGS = {{}}


def make():
  return table.splits(
      SOURCES, CLASSES, text={text!r}, label={label!r}, encoding={encoding!r})
'''


class Row(NamedTuple):
  text: str
  label: str


def read(path: str, text: str, label: str, encoding: str = 'utf-8'
         ) -> tuple[list[Row], int]:
  """Returns the rows of a table, and how many have no text or no label.

  Texts and labels are taken as they are: nothing is read as a number or as
  missing. A UserError names the line of a fault.
  """
  before, line = csv.field_size_limit(_LONGEST), 1
  try:
    if codecs.lookup(encoding).name == 'utf-8':
      encoding = 'utf-8-sig'
    with opened(pathlib.Path(path)) as f, io.TextIOWrapper(
        f, encoding, newline='') as table:
      header = table.readline()
      table.seek(0)
      reader = csv.reader(
          table, strict=True, delimiter=_delimiter(header, text, label))
      names = next(reader, [])
      for column in (text, label):
        if column not in names:
          raise UserError(f'The first line of {path} has no column {column!r}: '
                          + plain(choose(column, names or ['(none)'])))
        if names.count(column) > 1:
          raise UserError(f'{path} has {names.count(column)} columns '
                          f'{column!r}: rename all but one.')
      places = names.index(text), names.index(label)
      found, empty = [], 0
      for fields in reader:
        line = reader.line_num
        if fields and len(fields) != len(names):
          raise UserError(
              f'{path}, line {line}: {len(fields)} fields instead of '
              f'{len(names)}: put a field with a delimiter, a quote or a line '
              'end between quotes.')
        if fields:
          row = Row(*(fields[place] for place in places))
          if row.text.strip() and row.label.strip():
            found.append(row)
          else:
            empty += 1
    return found, empty
  except LookupError as e:
    raise UserError(f'--encoding={encoding} is unknown ({e}): name one such as '
                    'utf-8, latin-1 or utf-16.') from e
  except UnicodeError as e:
    raise UserError(
        f'{path} is not {encoding.removesuffix("-sig")} after line {line} '
        f'({e.reason if isinstance(e, UnicodeDecodeError) else e}): save it as '
        'UTF-8, or name its encoding, such as --encoding=latin-1 or '
        '--encoding=utf-16.') from e
  except csv.Error as e:
    raise UserError(f'{path}, line {line + 1} is not CSV ({e}): put fields '
                    'with quotes or line ends between quotes.') from e
  except BROKEN as e:
    raise UserError(f'{path} cannot be read ({getattr(e, "strerror", 0) or e})'
                    ': give a table in CSV.') from e
  finally:
    csv.field_size_limit(before)


def _delimiter(header, *columns):
  """Returns the first delimiter by which a header has all columns."""
  return next((d for d in _DELIMITERS if {*columns} <= {
      *next(csv.reader([header], delimiter=d), ())}), _DELIMITERS[0])


def splits(sources: Iterable[str], classes: Sequence[str], *, text: str,
           label: str, encoding: str = 'utf-8'
           ) -> dict[str, tuple[list[bytes], list[int]]]:
  """Returns the documents and labels of each split of one or two tables.

  A second table has the test split. Otherwise a tenth of the distinct texts of
  each class are the test split, and another tenth of train is val. A hash of
  the text chooses them, so equal texts are in one split.
  """
  rows, *test = (read(path, text, label, encoding)[0] for path in sources)
  parts = _parts(rows, not test)
  if test:
    parts['test'] = test[0]
  number = {name: i for i, name in enumerate(classes)}
  return {name: ([row.text.encode(errors='replace') for row in parts[name]],
                 [number[row.label] for row in parts[name]])
          for name in SPLITS}


def _parts(rows, with_test):
  """Divides rows into splits: {name: rows, in their order}."""
  label_of = {}
  for row in rows:
    label_of.setdefault(row.text, row.label)
  members = collections.defaultdict(list)
  for text, label in label_of.items():
    members[label].append(text)
  place = {}
  for texts in members.values():
    texts.sort(key=lambda text: hashlib.blake2b(
        text.encode(errors='replace'), digest_size=8).digest())
    at = 0
    for name in ('val', 'test')[:1 + with_test]:
      share = min(1 / _SHARE, _MOST[name] / len(label_of))
      count = max(round(len(texts) * share), 1)
      place |= dict.fromkeys(texts[at:at + count], name)
      at += count
  parts = {name: [] for name in SPLITS}
  for row in rows:
    parts[place.get(row.text, 'train')].append(row)
  return parts


def describe(name: str, tables: Sequence[str], text: str, label: str, *,
             length: int | None = None, encoding: str = 'utf-8'
             ) -> tuple[pathlib.Path, bytes, list[str]]:
  """Returns the file of a task of tables, its content, and facts in words."""
  found = [read(path, text, label, encoding) for path in tables]
  rows = [row for table, _ in found for row in table]
  counts = collections.Counter(row.label for row in rows)
  classes = _ordered(counts)
  distinct = [collections.Counter(label for _, label in {*table})
              for table, _ in found]
  for where, known, least in zip(tables, distinct, (4 - len(tables), 1),
                                 strict=False):
    for one in classes:
      if known[one] < least:
        raise UserError(
            f'{where} has {known[one]} different texts with the label {one!r} '
            f'in column {label}, and needs {least}: add some, leave the label '
            'out, or name another column with --label.')
  if len(classes) < 2:
    raise UserError(f'{tables[0]} has {len(classes)} labels in column {label}: '
                    'a task needs two or more.')
  sizes = [len(row.text.encode(errors='replace')) for row in rows]
  kept = min(-(-max(sizes) // _LENGTHS) * _LENGTHS, LENGTH) if (
      length is None) else length
  sources = {str(pathlib.Path(path).absolute()): own.digest(path)
             for path in tables}
  if len({*sources.values()}) < len(tables):
    raise UserError(f'{tables[1]} equals {tables[0]}: leave out --test_csv.')
  content = _FILE.format(
      name=name, title=name, length=kept, classes=tuple(classes),
      tables=' and '.join(pathlib.Path(path).name for path in tables)
      .replace('\\', '/').replace('"', "'"),
      sources=sources, text=text, label=label, encoding=encoding)
  return tasks.FOLDER / f'{name}.py', content.encode(), _facts(
      rows, classes, counts, sizes, kept, sum(empty for _, empty in found))


def _ordered(labels):
  """Returns labels by their number if all are numbers, else by name."""
  if all(re.fullmatch(r'-?[0-9]{1,300}(\.[0-9]{1,300})?', label)
         for label in labels):
    return sorted(labels, key=lambda label: (float(label), label))
  return sorted(labels)


def _facts(rows, classes, counts, sizes, kept, empty):
  """Returns sentences about classes, lengths and strange rows."""
  shares = [f'{one!r} {counts[one] / len(rows):.1%}' for one in classes]
  more = len(shares) - _SHOWN
  said = [f'{len(rows):,} texts in {len(classes)} classes: '
          + ', '.join(shares[:_SHOWN]) + (f' and {more} more' * (more > 0))]
  rare = [one for one in classes if counts[one] < _RARE * len(rows)]
  common = max(counts.values()) / len(rows)
  if common > 0.5 and common > 1.5 / len(classes) or (
      rare and len(classes) <= _SHOWN):
    said.append(
        f'imbalance: the most common class has {common:.1%}, so compare '
        'accuracies with the baseline "majority"' + (
            f'; classes with less than {_RARE:.0%}: {len(rare)}' * bool(rare)))
  cut = sum(size > kept for size in sizes)
  if cut:
    said.append(f'{cut / len(rows):.1%} of the texts are longer than {kept} '
                'bytes and are cut there; --length keeps more')
  if empty:
    said.append(f'left out, without a text or a label: {empty:,} rows')
  labels = collections.defaultdict(set)
  for row in rows:
    labels[row.text].add(row.label)
  several = sum(len(some) > 1 for some in labels.values())
  if several:
    said.append(f'texts that have several labels: {several:,}')
  return said


def make(name: str, tables: Sequence[str], text: str, label: str,
         **options) -> tuple[pathlib.Path | None, list[str]]:
  """Writes the file of a task of tables.

  Returns its path, None if it was there already, and facts in words.
  """
  try:
    tasks.check_name(name)
  except ValueError as e:
    raise UserError(f'--name={name}: {e}.') from e
  path, content, said = describe(name, tables, text, label, **options)
  if path.exists() and files.read(path) != content:
    raise UserError(
        f'{path} is there already and describes other data or settings: '
        f'choose another --name, use --task={name} for that task, or delete '
        'the file to describe it anew.')
  if path.exists():
    return None, said
  files.write_all({path: content})
  return path, said
