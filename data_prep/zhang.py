"""AG News and Amazon reviews: texts in the tables of Zhang et al. 2015.

The source is a corpus of Zhang, Zhao and LeCun 2015, arXiv 1509.01626: two
tables without a header, `train.csv` and `test.csv`, with the columns class
(from 1), title and text. An example is title and text with a space between
them. The corpora have no validation split: equally many rows of each class of
train become one here, chosen by a hash of the row number.

Documents are stored as bytes. A run with a tokenizer turns them into word
pieces when it reads them; see `lra.data.wordpiece`.
"""

import csv
import dataclasses
import hashlib
import io
import pathlib
from collections.abc import Iterator, Mapping

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

from lra.core import files
from lra.core.errors import UserError
from lra.data_prep import archives
from lra.data_prep.builder import Builder
from lra.data_prep.content import Content, choose, duplicates, split_of

_ROW = 1 << 10  # bytes; a table whose rows are longer on average is not read


@dataclasses.dataclass(frozen=True)
class Corpus:
  """The two tables of a data set.

  Attributes:
    title: its name.
    folder: name of the folder of tables in the authors' archive.
    classes: names of the classes.
    sizes: split -> rows of its table.
    val: number of rows of train that become the validation split.
    hashes: split -> SHA-256 or MD5 of its table, in hexadecimal.
    url: address of a folder with copies of the tables; '' if there is none.
    lengths: split -> bytes of its table, for a download.
  """
  title: str
  folder: str
  classes: tuple[str, ...]
  sizes: Mapping[str, int]
  val: int
  hashes: Mapping[str, str]
  url: str = ''
  lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)

  def url_infos(self) -> dict[str, checksums.UrlInfo]:
    """Returns the addresses of the tables, with their sizes and SHA-256."""
    return {f'{self.url}{split}.csv': checksums.UrlInfo(
        size=size, checksum=self.hashes[split], filename=f'{split}.csv')
            for split, size in self.lengths.items()}


# The authors' archives have these very tables. The MD5 of Amazon's are those
# that torchtext 0.11 compares (torchtext/datasets/amazonreviewfull.py).
CORPORA = {
    'ag_news': Corpus(
        'AG News', 'ag_news_csv', ('World', 'Sports', 'Business', 'Sci/Tech'),
        {'train': 120_000, 'test': 7600}, 6000,
        {'train': '76a0a2d2f92b286371fe4d4044640910'
                  'a04a803fdd2538e0f3f29a5c6f6b672e',
         'test': '521465c2428ed7f02f8d6db6ffdd4b54'
                 '47c1c701962353eb2c40d548c3c85699'},
        'https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/'
        'data/ag_news_csv/', {'train': 29_470_338, 'test': 1_857_427}),
    'amazon': Corpus(
        'Amazon Review Full', 'amazon_review_full_csv',
        ('1 star', *(f'{stars} stars' for stars in range(2, 6))),
        {'train': 3_000_000, 'test': 650_000}, 10_000,
        {'train': '31b268b09fd794e0ca5a1f59a0358677',
         'test': '0f1e78ab60f625f2a30eab6810ef987c'}),
}


class Zhang(Builder):
  """Titles and texts of news items or reviews, as bytes (arXiv 1509.01626)."""
  BUILDER_CONFIGS = [
      tfds.core.BuilderConfig(name=name, description=corpus.title)
      for name, corpus in CORPORA.items()]

  @property
  def corpus(self) -> Corpus:
    return CORPORA[self.builder_config.name]

  @property
  def url_infos(self):
    return self.corpus.url_infos()

  def parameters(self):
    return {'val': self.corpus.val}

  def make(self, dl_manager):
    rows, same = {}, True
    for split, table in self._tables(dl_manager):
      known = self.corpus.hashes[split]
      digest = hashlib.md5 if len(known) == 32 else hashlib.sha256
      same &= digest(table, usedforsecurity=False).hexdigest() == known
      rows[split] = read_table(table, self.corpus, split)
      del table  # the next one takes its place in memory
    for split in self.corpus.sizes:
      if split not in rows:
        raise UserError(
            f'{self.source} has no {split}.csv: {self._layout}.')
    return _content(rows, self.corpus, same)

  def identify_source(self):
    if not self.source and not self.corpus.url:
      raise UserError(f'{self.absent}, and {self.corpus.title} is made from '
                      f'files only: {self._layout}.')
    if self.source and not self.source.exists():
      raise UserError(f'{self.source} does not exist: {self._layout}.')
    return None  # an archive and a folder hold the same rows

  @property
  def _layout(self):
    return (f'--source of {self.task_name} must be a folder with train.csv and '
            f'test.csv, or {self.corpus.folder}.tar.gz')

  def _tables(self, dl_manager) -> Iterator[tuple[str, bytes]]:
    """Yields the split and the bytes of each table; raises UserError."""
    sizes = self.corpus.sizes
    if self.source and not self.source.is_dir():
      most = {f'{split}.csv': _ROW * size for split, size in sizes.items()}
      for name, table in archives.files(
          self.source, lambda member: member.size <= most.get(
              pathlib.PurePosixPath(member.name).name, -1)):
        yield pathlib.PurePosixPath(name).stem, table
      return
    if self.source:
      inside = self.source / self.corpus.folder
      folder = inside if inside.is_dir() else self.source
      paths = [folder / f'{split}.csv' for split in sizes]
    else:
      paths = self.fetch_all(dl_manager, self.corpus.folder, self.corpus.title)
    for split, path in zip(sizes, paths, strict=True):
      try:
        yield split, files.read(path, _ROW * sizes[split])
      except OSError as e:
        raise UserError(f'{path} cannot be read ({e.strerror}): '
                        f'{self._layout}.') from e


BUILDER = Zhang


def read_table(table: bytes, corpus: Corpus, split: str
               ) -> list[tuple[bytes, int]]:
  """Reads a table.

  Args:
    table: CSV in UTF-8, with the columns class (from 1), title, text.
    corpus: the corpus, with its classes and numbers of rows.
    split: the split of the table.

  Returns:
    For each row its text, UTF-8, and its class from 0.

  Raises:
    UserError: the table is not such CSV, or has another number of rows.
  """
  found, size = [], corpus.sizes[split]
  classes = [str(i + 1) for i in range(len(corpus.classes))]
  try:
    for row in csv.reader(map(bytes.decode, io.BytesIO(table)), strict=True):
      label, title, text = row
      found.append((f'{title} {text}'.encode(), classes.index(label)))
  except (ValueError, csv.Error) as e:
    raise UserError(
        f'Row {len(found) + 1} of {split}.csv does not have a class from 1 to '
        f'{classes[-1]}, a title and a text ({e}): download it again.') from e
  if len(found) != size:
    raise UserError(f'{split}.csv has {len(found):,} rows instead of {size:,}: '
                    'download it again.')
  return found


def _content(rows, corpus, same):
  keys = [f'train/{i}' for i in range(len(rows['train']))]
  chosen = set(choose(keys, [label for _, label in rows['train']],
                      corpus.val).tolist())
  parts = {
      'train': [e for i, e in enumerate(rows['train']) if i not in chosen],
      'val': [rows['train'][i] for i in sorted(chosen)],
      'test': rows['test']}
  splits = {name: split_of(*zip(*examples, strict=True))
            for name, examples in parts.items()}
  origin = f'{corpus.title} (Zhang et al. 2015)'
  return Content(splits, {
      'origin': origin if same else f'{origin}, a copy with other bytes',
      'val': f'{corpus.val} items held out of train, stratified, by hash of '
             'number',
      'duplicates': duplicates(splits)})
