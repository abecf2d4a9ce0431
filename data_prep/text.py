"""Text: the sentiment of IMDB reviews, byte by byte, two classes.

The source is the Large Movie Review Dataset (Maas et al. 2011): its archive
`aclImdb_v1.tar.gz` or the unpacked directory. It has no validation split: 2,500
reviews of train, equally many of each label, become one here. A hash of their
file names chooses them.
"""

import hashlib
import re

from lra.core.errors import UserError
from lra.core.terminal import progress
from lra.data_prep.builder import Builder, configs
from lra.data_prep.content import Content, divided
from lra.data_prep.source import Origin, Source

URL = 'http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz'
SHA256 = 'c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe'
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
VARIANTS = {'lra': (4000, None), 'mini': (512, (20_000, 1000, 5000)),
            'laptop': (1024, (22_500, 2500, 10_000))}

_REVIEW = re.compile(r'(?:.*/)?((?:train|test)/(?:pos|neg))/([^/]+\.txt)')


class Text(Builder):
  """Byte-level IMDB reviews of Long Range Arena (arXiv 2011.04006)."""
  BUILDER_CONFIGS = configs(
      lra='4000 bytes', mini='512 bytes, fewer reviews',
      laptop='1024 bytes, fewer reviews in test')
  origin = Origin(
      'IMDB reviews', 'aclImdb_v1.tar.gz or the directory it unpacks to',
      {URL: (84_125_825, SHA256)})

  def parameters(self):
    cut, sizes = VARIANTS[self.builder_config.name]
    return {'bytes_kept': cut, 'sizes': sizes, 'val': VAL_REVIEWS}

  def inputs(self, files):
    return []  # `make` takes only the known reviews

  def make(self, files):
    return _content(
        *read_reviews(files), *VARIANTS[self.builder_config.name])


def read_reviews(source: Source) -> tuple[dict[str, dict[str, bytes]], str]:
  """Reads all reviews.

  Returns:
    A dict from folder ('train/pos', ...) to a dict from file name to text; and
    the origin of the reviews.
  """
  reviews = {folder: {} for folder in FOLDERS}
  total = 0
  for name, text in progress(
      source.files(_most, 'aclImdb'), desc=f'reading {source.path.name}',
      unit=' reviews', total=len(FOLDERS) * REVIEWS_PER_FOLDER):
    folder, file = _REVIEW.fullmatch(name).groups()
    reviews[folder][file] = text
    total += len(text)
  if not any(reviews.values()):
    raise source.refused(f'has no reviews aclImdb/{FOLDERS[0]}/0_3.txt and so '
                         'on')
  for folder, files in reviews.items():
    if len(files) != REVIEWS_PER_FOLDER:
      raise UserError(
          f'{source.path} has {len(files)} reviews in aclImdb/{folder} instead '
          f'of {REVIEWS_PER_FOLDER}: download or unpack it again.')
  return reviews, _origin(source.path, reviews, total)


def _most(name):
  return 2 * TOTAL_BYTES if _REVIEW.fullmatch(name) else 0


def _origin(path, reviews, total):
  """Returns the origin of the reviews; raises UserError if it is unknown."""
  if path.is_file():
    with open(path, 'rb') as f:
      if hashlib.file_digest(f, 'sha256').hexdigest() == SHA256:
        return ORIGIN
  if total == TOTAL_BYTES:
    return f'{ORIGIN}, by the size of its reviews'
  if total != COPY_BYTES:
    raise UserError(f'The reviews of {path} have {total} bytes instead of '
                    f'{TOTAL_BYTES}: download or unpack it again.')
  if digest(reviews) != COPY_SHA256:
    raise UserError(f'The reviews of {path} have the size of a known copy, '
                    'but other content: download or unpack it again.')
  return f'{ORIGIN}, a copy of {COPY_BYTES:,} bytes'


def digest(reviews: dict[str, dict[str, bytes]]) -> str:
  """Returns the SHA-256 of names, lengths and texts, sorted by name."""
  found = hashlib.sha256()
  for folder, files in sorted(reviews.items()):
    for name, text in sorted(files.items()):
      found.update(f'{folder}/{name} {len(text)}\n'.encode())
      found.update(text)
  return found.hexdigest()


def examples(reviews: dict[str, dict[str, bytes]], cut: int | None = None
             ) -> tuple[list[tuple[str, bytes, int]], ...]:
  """Returns (name, text, label) of the reviews of train, and those of test.

  `cut` is the number of bytes kept of each text; None keeps all.
  """
  return tuple([(f'{folder}/{name}', text[:cut], int(folder.endswith('pos')))
                for folder in FOLDERS if folder.startswith(split)
                for name, text in sorted(reviews[folder].items())]
               for split in ('train', 'test'))


def _content(reviews, origin, cut, sizes):
  splits = divided(*examples(reviews, cut), VAL_REVIEWS, sizes)
  return Content(splits, {
      'origin': origin, 'bytes_kept': cut,
      'val': f'of {VAL_REVIEWS} reviews held out of train, stratified, by hash '
             'of name'})
