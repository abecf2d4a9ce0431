"""AG News and Amazon reviews: texts in the tables of Zhang et al. 2015.

The source is a corpus of Zhang, Zhao and LeCun 2015, arXiv 1509.01626: two
tables without a header, `train.csv` and `test.csv`, with the columns class
(from 1), title and text. An example is title and text with a space between
them. The corpora have no validation split: equally many rows of each class of
train become one here, chosen by a hash of the row number.
"""

import codecs
import csv
import dataclasses
import hashlib
import io
import re
from collections.abc import Mapping

from lra.core.errors import UserError
from lra.data_prep.builder import Builder, configs
from lra.data_prep.content import Content, divided
from lra.data_prep.source import Origin

_ROW = 1 << 10  # bytes; a table whose rows are longer on average is not read
_TABLE = re.compile(r'(?:.*/)?(train|test)\.csv')


@dataclasses.dataclass(frozen=True)
class Corpus:
  """The two tables of a data set; mappings have a key for each split."""
  title: str
  folder: str  # of the tables in the authors' archive
  classes: tuple[str, ...]
  sizes: Mapping[str, int]  # rows
  val: int  # rows of train that become the validation split
  hashes: Mapping[str, str]  # SHA-256 or MD5, in hexadecimal
  url: str = ''  # of a folder with copies of the tables
  lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)  # bytes


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
  BUILDER_CONFIGS = configs(**{
      name: corpus.title for name, corpus in CORPORA.items()})

  @property
  def corpus(self) -> Corpus:
    return CORPORA[self.builder_config.name]

  @property
  def origin(self):
    of = self.corpus
    layout = f'a folder with train.csv and test.csv, or {of.folder}.tar.gz'
    return Origin(of.title, layout, {
        f'{of.url}{split}.csv': (size, of.hashes[split])
        for split, size in of.lengths.items()}, of.folder)

  def parameters(self):
    return {'val': self.corpus.val}

  def make(self, files):
    rows, same = {}, True
    for name, table in files.files(self._most, self.corpus.folder):
      split = _TABLE.fullmatch(name)[1]
      known = self.corpus.hashes[split]
      digest = hashlib.md5 if len(known) == 32 else hashlib.sha256
      same &= digest(table, usedforsecurity=False).hexdigest() == known
      rows[split] = read_table(table, self.corpus, split)
      del table  # the next one takes its place in memory
    for split in self.corpus.sizes:
      if split not in rows:
        raise files.refused(f'has no {split}.csv')
    return _content(rows, self.corpus, same)

  def inputs(self, files):
    return files.paths(self._most, self.corpus.folder)

  def _most(self, name):
    match = _TABLE.fullmatch(name)
    return match and _ROW * self.corpus.sizes[match[1]]


def read_table(table: bytes, corpus: Corpus, split: str
               ) -> list[tuple[str, bytes, int]]:
  """Returns the key, the text in UTF-8 and the class from 0 of each row."""
  found, size = [], corpus.sizes[split]
  classes = [str(i + 1) for i in range(len(corpus.classes))]
  # By default a field has at most 131,072 letters.
  csv.field_size_limit(max(csv.field_size_limit(), len(table)))
  rows = csv.reader(map(bytes.decode, io.BytesIO(
      table.removeprefix(codecs.BOM_UTF8))), strict=True)
  try:
    for label, title, text in rows:
      found.append((f'{split}/{len(found)}', f'{title} {text}'.encode(),
                    classes.index(label)))
  except (ValueError, csv.Error) as e:
    raise UserError(
        f'Row {len(found) + 1} of {split}.csv does not have a class from 1 to '
        f'{classes[-1]}, a title and a text ({e}): correct it, or download it '
        'again.') from e
  if len(found) != size:
    raise UserError(f'{split}.csv has {len(found):,} rows instead of {size:,}: '
                    'download it again.')
  return found


def _content(rows, corpus, same):
  splits = divided(rows['train'], rows['test'], corpus.val)
  origin = f'{corpus.title} (Zhang et al. 2015)'
  return Content(splits, {
      'origin': origin if same else f'{origin}, a copy with other bytes',
      'val': f'{corpus.val} items held out of train, stratified, by hash of '
             'number'})
