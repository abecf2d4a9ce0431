"""Text: the sentiment of IMDB reviews, byte by byte, two classes.

The source is the Large Movie Review Dataset (Maas et al. 2011): its archive
`aclImdb_v1.tar.gz` or the unpacked directory. It has no validation split: 2,500
reviews of train, equally many of each label, become one here. A hash of their
file names chooses them.
"""

import hashlib
import pathlib
import re

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

from lra.core.errors import UserError
from lra.core.terminal import progress
from lra.data_prep import archives
from lra.data_prep.builder import Builder
from lra.data_prep.content import Content, choose, duplicates, split_of

URL = 'http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz'
FOLDERS = ('train/neg', 'train/pos', 'test/neg', 'test/pos')
REVIEWS_PER_FOLDER = 12_500
# Bytes of all texts, computed from `imdb` at Hugging Face, which was made from
# the archive. `imdb` has 33,432,823 and 32,650,685 bytes; in these each review
# takes 12 more for its label and offset.
TOTAL_BYTES = 65_483_508
# A copy that differs in places: its size, and SHA-256 of its reviews.
COPY_BYTES = 65_477_753
COPY_SHA256 = '1999978f030cbf075dc413bcb5eb0da74293132f2def35b91c16c068eb5c416b'
VAL_REVIEWS = 2500
ORIGIN = 'Large Movie Review Dataset'

# Variant -> (bytes kept of a review, sizes of train, val and test). None: all
# reviews.
VARIANTS = {'lra': (4000, None), 'mini': (512, (20_000, 1000, 5000))}

_LAYOUT = ('--source of text must be aclImdb_v1.tar.gz or the directory it '
           'unpacks to')
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
    source = self.source or self.fetch(
        dl_manager, 'aclImdb_v1.tar.gz', 'IMDB reviews')
    return _content(
        *read_reviews(source), *VARIANTS[self.builder_config.name])

  def identify_source(self):
    if self.source and not self.source.exists():
      raise UserError(f'{self.source} does not exist: {_LAYOUT}.')
    return None  # archive and directory hold the same reviews


BUILDER = Text


def read_reviews(source: pathlib.Path
                 ) -> tuple[dict[str, dict[str, bytes]], str]:
  """Reads all reviews of an archive or a directory.

  Returns:
    A dict from folder ('train/pos', ...) to a dict from file name to text; and
    the origin of the reviews.

  Raises:
    UserError: the archive is damaged, or reviews are missing or differ.
  """
  if source.is_dir():
    reviews = _read_directory(source)
  else:
    reviews = _read_archive(source)
  if not any(reviews.values()):
    raise UserError(f'{source} has no reviews aclImdb/{FOLDERS[0]}/0_3.txt and '
                    f'so on: {_LAYOUT}.')
  for folder, files in reviews.items():
    if len(files) != REVIEWS_PER_FOLDER:
      raise UserError(
          f'{source} has {len(files)} reviews in aclImdb/{folder} instead of '
          f'{REVIEWS_PER_FOLDER}: download or unpack it again.')
  return reviews, _origin(source, reviews)


def _origin(source, reviews):
  """Returns the origin of the reviews; raises UserError if it is unknown."""
  if source.is_file() and _is_original(source):
    return ORIGIN
  total = sum(len(t) for files in reviews.values() for t in files.values())
  if total == TOTAL_BYTES:
    return f'{ORIGIN}, by the size of its reviews'
  if total != COPY_BYTES:
    raise UserError(f'The reviews of {source} have {total} bytes instead of '
                    f'{TOTAL_BYTES}: download or unpack it again.')
  if digest(reviews) != COPY_SHA256:
    raise UserError(f'The reviews of {source} have the size of a known copy, '
                    'but other content: download or unpack it again.')
  return f'{ORIGIN}, a copy of {COPY_BYTES:,} bytes'


def _is_original(archive):
  with open(archive, 'rb') as f:
    return hashlib.file_digest(f, 'sha256').hexdigest() == (
        Text.url_infos[URL].checksum)


def digest(reviews: dict[str, dict[str, bytes]]) -> str:
  """Returns the SHA-256 of names, lengths and texts, sorted by name."""
  found = hashlib.sha256()
  for folder, files in sorted(reviews.items()):
    for name, text in sorted(files.items()):
      found.update(f'{folder}/{name} {len(text)}\n'.encode())
      found.update(text)
  return found.hexdigest()


def _read_directory(source):
  root = source / 'aclImdb' if (source / 'aclImdb').is_dir() else source
  paths = [(f, p) for f in FOLDERS for p in sorted((root / f).glob('*.txt'))
           if not archives.is_apple_double(p.name)]
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
  """Returns `total` + `size`; raises UserError if that is far too large."""
  total += size
  if total > 2 * TOTAL_BYTES:
    raise UserError(f'With {name} the reviews have {total} bytes instead of '
                    f'{TOTAL_BYTES}: download or unpack them again.')
  return total


def _read_archive(source):
  reviews = {folder: {} for folder in FOLDERS}
  total = 0

  def wanted(member):
    nonlocal total
    if not _MEMBER.fullmatch(member.name):
      return False
    total = _add(total, member.size, f'{source}:{member.name}')
    return True

  for name, text in progress(
      archives.files(source, wanted), desc=f'reading {source.name}',
      unit=' reviews', total=len(FOLDERS) * REVIEWS_PER_FOLDER):
    folder, file = _MEMBER.fullmatch(name).groups()
    reviews[folder][file] = text
  return reviews


def _content(reviews, origin, cut, sizes):
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
      'origin': origin, 'bytes_kept': cut,
      'val': f'of {VAL_REVIEWS} reviews held out of train, stratified, by hash '
             'of name',
      'duplicates': duplicates(splits)})


def _examples(reviews, split):
  """Returns (key, text, label) of a split, in the order of the file names."""
  return [(f'{folder}/{name}', text, int(folder.endswith('pos')))
          for folder in FOLDERS if folder.startswith(split)
          for name, text in sorted(reviews[folder].items())]
