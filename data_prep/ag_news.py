"""AG News: the topic of a news item, four classes.

The source is the corpus of Zhang, Zhao and LeCun 2015, arXiv 1509.01626: two
tables without a header, `train.csv` and `test.csv`, with the columns class (1
to 4), title and description. An example is title and description with a space
between them. The corpus has no validation split: 1,500 items of each class of
train become one here. A hash of their numbers chooses them.

Documents are stored as bytes. A run with a tokenizer turns them into word
pieces when it reads them; see `lra.data.wordpiece`.
"""

import csv
import hashlib
import io
import pathlib

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

from data_prep import archives
from data_prep.builder import Builder
from data_prep.content import Content, choose, duplicates, split_of
from lra import files
from lra.errors import UserError

CLASSES = ('World', 'Sports', 'Business', 'Sci/Tech')
# A copy of the two tables. The authors' archive, ag_news_csv.tar.gz, has the
# same ones.
URL = ('https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/'
       'ag_news_csv/')
# Split -> examples, and bytes and SHA-256 of its table.
SIZES = {'train': 120_000, 'test': 7600}
TABLES = {
    'train': (29_470_338, '76a0a2d2f92b286371fe4d4044640910'
                          'a04a803fdd2538e0f3f29a5c6f6b672e'),
    'test': (1_857_427, '521465c2428ed7f02f8d6db6ffdd4b54'
                        '47c1c701962353eb2c40d548c3c85699')}
VAL_EXAMPLES = 6000
ORIGIN = 'AG News (Zhang et al. 2015)'

_LARGEST = 1 << 27  # bytes of a table that are read
_LAYOUT = ('--source of ag_news must be a folder with train.csv and test.csv, '
           'or ag_news_csv.tar.gz')


class AgNews(Builder):
  """Titles and descriptions of news items, as bytes (arXiv 1509.01626)."""
  BUILDER_CONFIGS = [tfds.core.BuilderConfig(
      name='csv', description='title and description')]
  url_infos = {
      f'{URL}{split}.csv': checksums.UrlInfo(
          size=size, checksum=digest, filename=f'{split}.csv')
      for split, (size, digest) in TABLES.items()}

  def parameters(self):
    return {'val': VAL_EXAMPLES}

  def make(self, dl_manager):
    if self.source:
      tables = _tables(self.source)
    else:
      paths = self.fetch_all(dl_manager, 'ag_news_csv', 'AG News')
      tables = {split: files.read(path, _LARGEST)
                for split, path in zip(TABLES, paths, strict=True)}
    return _content({split: read_table(table, f'{split}.csv', SIZES[split])
                     for split, table in tables.items()}, _origin(tables))

  def identify_source(self):
    if self.source and not self.source.exists():
      raise UserError(f'{self.source} does not exist: {_LAYOUT}.')
    return None  # an archive and a folder hold the same items


BUILDER = AgNews


def read_table(table: bytes, name: str, size: int
               ) -> list[tuple[bytes, int]]:
  """Reads a table of news items.

  Args:
    table: CSV in UTF-8, with the columns class (1 to 4), title, description.
    name: name of the table, for errors.
    size: number of its rows.

  Returns:
    For each row its text, UTF-8, and its class from 0.

  Raises:
    UserError: the table is not such CSV, or has another number of rows.
  """
  found = []
  try:
    for row in csv.reader(io.StringIO(table.decode(), newline=''), strict=True):
      label, title, description = row
      found.append((f'{title} {description}'.encode(),
                    ('1', '2', '3', '4').index(label)))
  except (ValueError, csv.Error) as e:
    raise UserError(
        f'Row {len(found) + 1} of {name} does not have a class from 1 to 4, a '
        f'title and a description ({e}): download it again.') from e
  if len(found) != size:
    raise UserError(f'{name} has {len(found):,} rows instead of {size:,}: '
                    'download it again.')
  return found


def _tables(source: pathlib.Path) -> dict[str, bytes]:
  """Returns the tables of a folder or an archive; raises UserError."""
  if source.is_dir():
    inside = source / 'ag_news_csv'
    folder = inside if inside.is_dir() else source
    try:
      return {split: files.read(folder / f'{split}.csv', _LARGEST)
              for split in TABLES}
    except OSError as e:
      raise UserError(f'{e.filename or folder} cannot be read ({e.strerror}): '
                      f'{_LAYOUT}.') from e
  found = {
      pathlib.PurePosixPath(name).stem: table for name, table in archives.files(
          source, lambda member: member.size <= _LARGEST and pathlib.
          PurePosixPath(member.name).name in ('train.csv', 'test.csv'))}
  for split in TABLES:
    if split not in found:
      raise UserError(f'{source} has no {split}.csv: {_LAYOUT}.')
  return {split: found[split] for split in TABLES}


def _origin(tables):
  """Returns the origin of the tables; those of other bytes are a copy."""
  same = all(hashlib.sha256(tables[split]).hexdigest() == digest
             for split, (_, digest) in TABLES.items())
  return ORIGIN if same else f'{ORIGIN}, a copy with other bytes'


def _content(tables, origin):
  keys = [f'train/{i}' for i in range(len(tables['train']))]
  chosen = set(choose(keys, [label for _, label in tables['train']],
                      VAL_EXAMPLES).tolist())
  parts = {
      'train': [e for i, e in enumerate(tables['train']) if i not in chosen],
      'val': [tables['train'][i] for i in sorted(chosen)],
      'test': tables['test']}
  splits = {name: split_of(*zip(*examples, strict=True))
            for name, examples in parts.items()}
  return Content(splits, {
      'origin': origin,
      'val': f'{VAL_EXAMPLES} items held out of train, stratified, by hash of '
             'number',
      'duplicates': duplicates(splits)})
