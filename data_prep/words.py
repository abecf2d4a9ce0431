"""Words: the sentiment of IMDB reviews, word by word, two classes.

The source and the splits are those of `lra.data_prep.text`. As in Keras'
example of a Transformer for texts (keras.io/examples/nlp), words are in lower
case, between white space and punctuation other than apostrophes, and a review
is its last words. The most frequent words of train have the codes 1, 2, ... in
this order, and all other words have code 0.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lra.data_prep import text
from lra.data_prep.builder import Builder, configs
from lra.data_prep.content import Content, Split, divided, split_of

WORDS = 20_000
_PUNCTUATION = str.maketrans(dict.fromkeys(
    '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~', ' '))


class Words(Builder):
  """The last words of IMDB reviews, as in arXiv 2403.01643 and Keras."""
  BUILDER_CONFIGS = configs(last_32='32 words', last_200='200 words')
  origin = text.Text.origin

  def parameters(self):
    return {'words_kept': self.task.seq_len, 'vocabulary': WORDS,
            'val': text.VAL_REVIEWS}

  def inputs(self, files):
    return []  # `make` takes only the known reviews

  def make(self, files):
    reviews, origin = text.read_reviews(files)
    splits = divided(*text.examples(reviews), text.VAL_REVIEWS)
    found = {name: [words_of(split.document(i)) for i in range(len(split))]
             for name, split in splits.items()}
    codes = vocabulary(found['train'])
    return Content({
        name: encoded([review[-self.task.seq_len:] for review in found[name]],
                      split.labels, codes)
        for name, split in splits.items()}, {
            'origin': origin, **self.parameters()})


def words_of(review: bytes) -> list[str]:
  """Returns the words of a review, as Keras' `Tokenizer` splits it."""
  return review.decode(errors='replace').lower().translate(
      _PUNCTUATION).split()


def vocabulary(reviews: Iterable[list[str]]) -> dict[str, int]:
  """Returns {word: code} of the `WORDS` most frequent words.

  Of equally frequent words, the first in the alphabet has the lowest code.
  """
  counts = collections.Counter(word for review in reviews for word in review)
  order = sorted(counts, key=lambda word: (-counts[word], word))
  return {word: code for code, word in enumerate(order[:WORDS], 1)}


def encoded(texts: Sequence[list[str]], labels, codes: Mapping[str, int],
            pairs=None) -> Split:
  """Returns a split of texts in words; a word without a code has code 0."""
  return split_of([
      np.array([codes.get(word, 0) for word in text], np.uint16).tobytes()
      for text in texts], labels, pairs, np.uint16)
