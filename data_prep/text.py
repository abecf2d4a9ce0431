"""Text: the sentiment of IMDB reviews, byte by byte, two classes.

The source is the Large Movie Review Dataset (Maas et al. 2011), its archive
`aclImdb_v1.tar.gz` or the directory that this unpacks to. It has no validation
split: 2,500 reviews of train, as many of each label, become one here. Which
ones is fixed by a hash of their file names.
"""

import pathlib
import re
import tarfile
import zlib

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

from data_prep import download
from data_prep.builder import Builder
from data_prep.content import Content, split_of
from data_prep.progress import progress
from data_prep.subset import choose, duplicates
from lra.errors import UserError

URL = 'http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz'
FOLDERS = ('train/neg', 'train/pos', 'test/neg', 'test/pos')
REVIEWS_PER_FOLDER = 12_500
TOTAL_BYTES = 65_477_753
VAL_REVIEWS = 2500

# Bytes kept of a review; reviews of train, val and test, or all there are.
VARIANTS = {'lra': (4000, None), 'mini': (512, (20_000, 1000, 5000))}

_MEMBER = re.compile(
    r'(?:.*/)?aclImdb/((?:train|test)/(?:pos|neg))/([^/]+\.txt)')


class Text(Builder):
  """Byte-level IMDB reviews of Long Range Arena (arXiv 2011.04006)."""
  BUILDER_CONFIGS = [
      tfds.core.BuilderConfig(name='lra', description='4000 bytes'),
      tfds.core.BuilderConfig(
          name='mini', description='512 bytes, fewer reviews'),
  ]
  url_infos = {URL: checksums.UrlInfo(
      size=84_125_825, filename='aclImdb_v1.tar.gz', checksum=(
          'c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe'))}

  def parameters(self):
    cut, sizes = VARIANTS[self.builder_config.name]
    return {'bytes_kept': cut, 'sizes': sizes, 'val': VAL_REVIEWS}

  def make(self, dl_manager):
    source = self.source or download.fetch(
        dl_manager, URL, 'aclImdb_v1.tar.gz', 'IMDB reviews', self.task_name)
    return _content(read_reviews(source), *VARIANTS[self.builder_config.name])

  def identify_source(self):
    if self.source and not self.source.exists():
      raise UserError(f'{self.source} does not exist: --source of text must be '
                      'aclImdb_v1.tar.gz or the directory it unpacks to.')
    return None  # whatever it is, its reviews are the same


BUILDER = Text


def read_reviews(source: pathlib.Path) -> dict[str, dict[str, bytes]]:
  """Returns folder ('train/pos', ...) -> file name -> text.

  Raises:
    UserError: a damaged archive or not all of the reviews.
  """
  if source.is_dir():
    reviews = _read_directory(source)
  else:
    reviews = _read_archive(source)
  for folder, files in reviews.items():
    if len(files) != REVIEWS_PER_FOLDER:
      raise UserError(
          f'{source} has {len(files)} reviews in aclImdb/{folder} instead of '
          f'{REVIEWS_PER_FOLDER}: download or unpack it again.')
  total = sum(len(t) for files in reviews.values() for t in files.values())
  if total != TOTAL_BYTES:
    raise UserError(f'The reviews of {source} have {total} bytes instead of '
                    f'{TOTAL_BYTES}: download or unpack it again.')
  return reviews


def _read_directory(source):
  root = source / 'aclImdb' if (source / 'aclImdb').is_dir() else source
  paths = [(f, p) for f in FOLDERS for p in sorted((root / f).glob('*.txt'))]
  reviews = {folder: {} for folder in FOLDERS}
  total = 0
  try:
    for folder, path in progress(paths, desc='reading', unit=' reviews'):
      if path.is_file():
        total = _add(total, path.stat().st_size, path)
        reviews[folder][path.name] = path.read_bytes()
  except OSError as e:
    raise UserError(f'{path} cannot be read ({e.strerror}): unpack the archive '
                    'again.') from e
  return reviews


def _add(total, size, name):
  """The sum; refused, before anything that large is read, beyond the known."""
  total += size
  if total > TOTAL_BYTES:
    raise UserError(f'With {name} the reviews have {total} bytes instead of '
                    f'{TOTAL_BYTES}: download or unpack them again.')
  return total


def _read_archive(source):
  reviews = {folder: {} for folder in FOLDERS}
  bar = progress(desc=f'reading {source.name}', unit=' reviews',
                  total=len(FOLDERS) * REVIEWS_PER_FOLDER)
  total = 0
  try:
    with bar, tarfile.open(source, 'r|*') as archive:
      for member in archive:
        match = _MEMBER.fullmatch(member.name)
        if match and member.isfile():
          total = _add(total, member.size, f'{source}:{member.name}')
          text = archive.extractfile(member).read()
          reviews[match.group(1)][match.group(2)] = text
          bar.update()
  except (tarfile.TarError, EOFError, OSError, zlib.error) as e:
    raise UserError(f'{source} is damaged or not an archive ({e}): download '
                    'it again.') from e
  return reviews


def _content(reviews, cut, sizes):
  train, test = _examples(reviews, 'train'), _examples(reviews, 'test')
  chosen = set(choose([e[0] for e in train], [e[2] for e in train],
                      VAL_REVIEWS).tolist())
  parts = {
      'train': [e for i, e in enumerate(train) if i not in chosen],
      'val': [train[i] for i in sorted(chosen)],
      'test': test}
  splits = {}
  for i, (name, examples) in enumerate(parts.items()):
    keys, texts, labels = zip(*examples, strict=True)
    size = sizes[i] if sizes else len(labels)
    kept = choose(keys, labels, size).tolist()
    splits[name] = split_of(
        [texts[k][:cut] for k in kept], [labels[k] for k in kept])
  return Content(splits, {
      'origin': 'Large Movie Review Dataset', 'bytes_kept': cut,
      'val': f'{VAL_REVIEWS} reviews of train, stratified, by hash of name',
      'duplicates': duplicates(splits)})


def _examples(reviews, split):
  """(key, text, label) of a split, in the order of the file names."""
  return [(f'{folder}/{name}', text, int(folder.endswith('pos')))
          for folder in FOLDERS if folder.startswith(split)
          for name, text in sorted(reviews[folder].items())]
