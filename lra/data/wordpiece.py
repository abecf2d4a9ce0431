"""Word pieces: splits texts by the vocabulary of a BERT.

Source: Wu et al. 2016, arXiv 1609.08144, section 4.1, in the form of the
released code of BERT (Devlin et al. 2018, arXiv 1810.04805): words and
punctuation are separated, and each word is split into the longest pieces of the
vocabulary from its start. The library `tokenizers` does this.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re

import numpy as np

from lra.core import files, foreign, paths
from lra.core.errors import UserError
from lra.data_prep.content import Content, Split

# A folder may have either; the first one counts.
NAMES = ('tokenizer.json', 'vocab.txt')
_SETTINGS = 'tokenizer_config.json'
_PAD, _NEEDED = '[PAD]', ('[UNK]', '[CLS]', '[SEP]')
_LARGEST = 2**15 - 1  # ids are int16
_TEXTS_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """The vocabulary of a tokenizer for word pieces.

  Attributes:
    pieces: the piece of each id; id 0 is padding.
    lowercase: whether texts are lower-cased, and accents removed.
  """
  pieces: tuple[str, ...]
  lowercase: bool

  @functools.cached_property
  def sha256(self) -> str:
    """Hex digest of the pieces and of `lowercase`."""
    return hashlib.sha256(
        json.dumps([self.lowercase, *self.pieces]).encode()).hexdigest()

  def contents(self) -> dict[str, bytes]:
    """Returns {name: content} of the files that `read` makes it from."""
    return {'vocab.txt': ''.join(f'{p}\n' for p in self.pieces).encode(),
            _SETTINGS: json.dumps({'do_lower_case': self.lowercase}).encode()}

  def split(self, split: Split, length: int) -> Split:
    """Turns the bytes of a split without pairs into word pieces.

    Each document becomes [CLS], its pieces and [SEP], cut to `length` tokens.
    Bytes that are not UTF-8 count as the replacement character.

    Returns:
      The same examples with codes uint16; a code is the id minus one.
    """
    made = self._tokenizer(length)
    ids = []
    for start in range(0, len(split), _TEXTS_AT_ONCE):
      texts = [split.document(i).decode(errors='replace') for i in range(
          start, min(start + _TEXTS_AT_ONCE, len(split)))]
      ids += [np.array(e.ids, np.uint16) for e in made.encode_batch_fast(texts)]
    lengths = np.array([len(document) for document in ids], np.int64)
    return dataclasses.replace(
        split, tokens=np.concatenate([np.zeros(0, np.uint16), *ids]) - 1,
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))

  def prepared(self, data: Content, length: int) -> Content:
    """Returns a data set in word pieces; its fingerprint covers the vocabulary.
    """
    both = f'{data.fingerprint} {self.sha256}'.encode()
    return Content(
        {name: self.split(part, length) for name, part in data.splits.items()},
        {**data.info, 'fingerprint': hashlib.sha256(both).hexdigest(),
         'vocabulary': self.sha256})

  def _tokenizer(self, length):
    library = paths.need('tokenizers', 'A vocabulary of word pieces', 'bert')
    # No piece is registered as a special token, so a text cannot contain one.
    number = {piece: i for i, piece in enumerate(self.pieces)}
    made = library.Tokenizer(
        library.models.WordPiece(number, unk_token='[UNK]'))
    made.normalizer = library.normalizers.BertNormalizer(
        lowercase=self.lowercase)
    made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    made.post_processor = library.processors.BertProcessing(
        *((name, number[name]) for name in ('[SEP]', '[CLS]')))
    made.enable_truncation(length)
    return made


def read(place: str | os.PathLike) -> Vocabulary:
  """Reads the vocabulary of a folder of Hugging Face, or of one of its files.

  `tokenizer_config.json` beside `vocab.txt` may set `do_lower_case`.
  """
  path = pathlib.Path(place)
  if path.is_dir():
    path = next((path / name for name in NAMES if (path / name).exists()),
                path / NAMES[-1])
  with foreign.reading(path, 'give the folder of a BERT, with vocab.txt or '
                       'tokenizer.json', 'is no vocabulary of word pieces'):
    text = files.read_text(path)
    if path.suffix == '.json':
      pieces, lowercase = _of_tokenizer(json.loads(text))
    else:
      pieces = text.replace('\r\n', '\n').split('\n')
      pieces = pieces[:-1] if pieces[-1] == '' else pieces
      settings = files.read_json(path.parent / _SETTINGS)
      lowercase = (settings or {}).get('do_lower_case', True)
    ''.join(pieces).encode()  # a run keeps them in vocab.txt
  missing = [name for name in _NEEDED if name not in pieces]
  problem = (
      f'lacks the piece {missing[0]}' if missing else
      f'has {pieces[0]!r} as its first piece instead of {_PAD}'
      if pieces[0] != _PAD else
      'has a piece with a line end' if re.search('[\r\n]', ''.join(pieces)) else
      'has a piece twice' if len(set(pieces)) < len(pieces) else
      f'has {len(pieces):,} pieces, more than {_LARGEST:,}'
      if len(pieces) > _LARGEST else
      'has a do_lower_case that is not true or false'
      if not isinstance(lowercase, bool) else '')
  if problem:
    raise UserError(f'{path} {problem}: give the vocabulary of a BERT.')
  return Vocabulary(tuple(pieces), lowercase)


def _of_tokenizer(values):
  """Returns pieces and lowercase of a tokenizer.json; raises ValueError."""
  model, normalizer = values['model'], values['normalizer']
  if model.get('type', 'WordPiece') != 'WordPiece':
    raise ValueError(f'its model is {model["type"]}')
  if normalizer['type'] != 'BertNormalizer' or (
      normalizer.get('strip_accents') not in (None, normalizer['lowercase'])):
    raise ValueError('its normalizer is not that of BERT')
  vocabulary = model['vocab']
  pieces = sorted(vocabulary, key=vocabulary.__getitem__)
  if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
    raise ValueError('its ids have gaps')
  return pieces, normalizer['lowercase']
