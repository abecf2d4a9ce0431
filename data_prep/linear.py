"""Linear baselines on the tokens that models see (needs scikit-learn)."""

import itertools

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier

from lra.data_prep.content import split_of

_NGRAMS = (2, 3, 4, 5)
_FEATURES = 1 << 20
_PENALTIES = (1, 10, 100)
_BAG_PENALTIES = (0.03, 0.1, 0.3)
_COMMONEST = (1.0, 0.3, 0.1, 0.03)
_REVIEWS_AT_ONCE = 1000
_PAIRS_AT_ONCE = 10_000
# Of `quick_ngrams`: bytes of train, features, passes, and penalties.
_QUICK_BYTES, _QUICK_FEATURES, _PASSES = 3 << 22, 1 << 18, 5
_QUICK_PENALTIES = (1e-6, 1e-5, 1e-4)


def bag_of_words(splits):
  """Does what `byte_ngrams` does with the words of a review, in any order."""
  train, val, test = ((scipy.sparse.csr_matrix(
      (np.ones(len(split.tokens), np.float32), split.tokens, split.offsets),
      shape=(len(split), 1 << 16)) > 0).astype(np.float32)
                      for split in splits.values())
  model = _chosen(_BAG_PENALTIES, train, val, splits)
  return model.predict(test) == splits['test'].labels, (
      'logistic regression on which words occur; validation chooses C = '
      f'{model.C}')


def byte_ngrams(splits):
  """Returns right answers, bool [N], and a description: byte n-grams."""
  train, val, test = map(ngram_features, splits.values())
  model = _chosen(_PENALTIES, train, val, splits)
  sizes = ', '.join(map(str, _NGRAMS))
  return model.predict(test) == splits['test'].labels, (
      f'logistic regression on log counts of byte {sizes}-grams, hashed to '
      f'{_FEATURES} features and scaled to length 1; validation chooses C = '
      f'{model.C}')


def _chosen(penalties, train, val, splits):
  """Returns the logistic regression that scores highest on val."""
  return max((
      LogisticRegression(C=c, max_iter=200).fit(train, splits['train'].labels)
      for c in penalties), key=lambda m: m.score(val, splits['val'].labels))


def quick_ngrams(splits):
  """Does what `byte_ngrams` does within a minute, for data of any size.

  Most of a larger train split is left out, evenly.
  """
  train = splits['train']
  classes = int(train.labels.max()) + 1
  most = _QUICK_BYTES * 4 // max(classes + 1, 4)
  every = max(1, -(-len(train.tokens) // most))
  kept = np.arange(0, len(train), every)
  labels = train.labels[kept]
  rows, val, test = (ngram_features(split, _QUICK_FEATURES) for split in (
      split_of([train.document(i) for i in kept], labels), splits['val'],
      splits['test']))
  model = max((
      SGDClassifier('log_loss', alpha=alpha, max_iter=_PASSES, tol=None,
                    random_state=0).fit(rows, labels)
      for alpha in _QUICK_PENALTIES),
      key=lambda m: m.score(val, splits['val'].labels))
  sizes = ', '.join(map(str, _NGRAMS))
  return model.predict(test) == splits['test'].labels, (
      f'logistic regression, by {_PASSES} passes of SGD over {len(kept):,} '
      f'texts of train, on log counts of byte {sizes}-grams, hashed to '
      f'{_QUICK_FEATURES} features and scaled to length 1; validation chooses '
      f'the penalty {model.alpha}')


def ngram_features(split, features: int = _FEATURES
                   ) -> scipy.sparse.csr_matrix:
  """Returns log(1 + count) of hashed n-grams [N, features], rows of norm 1."""
  blocks = [_block(split, start, min(start + _REVIEWS_AT_ONCE, len(split)),
                   features)
            for start in range(0, len(split), _REVIEWS_AT_ONCE)]
  return scipy.sparse.vstack(blocks, format='csr')


def _block(split, start, stop, features):
  offsets = split.offsets[start:stop + 1]
  tokens = split.tokens[offsets[0]:offsets[-1]].astype(np.uint64)
  row = np.repeat(np.arange(stop - start), np.diff(offsets))
  keys = [np.zeros(0, np.int64)]
  for n in _NGRAMS if len(tokens) >= _NGRAMS[-1] else ():
    inside = row[:-n + 1] == row[n - 1:]
    keys.append((row[:-n + 1] * features + _hash(tokens, n, features))[inside])
  keys, counts = np.unique(np.concatenate(keys), return_counts=True)
  row, column = np.divmod(keys, features)
  value = np.log1p(counts).astype(np.float32)
  norm = np.sqrt(np.bincount(row, value ** 2, minlength=stop - start))
  starts = np.searchsorted(row, np.arange(stop - start + 1))
  return scipy.sparse.csr_matrix(
      (value / norm[row].astype(np.float32), column.astype(np.int32),
       starts.astype(np.int32)), shape=(stop - start, features))


def _hash(tokens, n, features):
  """Returns the feature number of the n-gram that begins at each token."""
  code = np.full(len(tokens) - n + 1, n, np.uint64)
  for i in range(n):
    code = (code << np.uint64(8)) | tokens[i:len(tokens) - n + 1 + i]
  # Fibonacci hashing: the highest bits of a product are well mixed.
  code *= np.uint64(0x9E3779B97F4A7C15)
  bits = np.uint64(64 - features.bit_length() + 1)
  return (code >> bits).astype(np.int64)


def tfidf_cosine(splits):
  """Compares the cosine of a pair's TF-IDF vectors with a threshold.

  Words in most documents are left out: val chooses in how many. The result is
  like that of `byte_ngrams`.
  """
  train, found = splits['train'], []
  words = [
      train.document(i).decode('latin-1') if train.tokens.dtype == np.uint8 else
      ' '.join(map(str, train.tokens[start:end]))
      for i, (start, end) in enumerate(itertools.pairwise(train.offsets))]
  for share in _COMMONEST:
    vectors = TfidfVectorizer(
        sublinear_tf=True, min_df=2, max_df=share, dtype=np.float32)
    try:
      vectors.fit([words[i] for i in np.unique(train.pairs)])
    except ValueError:  # few documents: no word is that rare
      continue
    table = vectors.transform(words)
    threshold = best_threshold(_cosines(table, train.pairs), train.labels)
    found.append((np.mean(_right(table, splits['val'], threshold)), share,
                  threshold, _right(table, splits['test'], threshold)))
  _, share, threshold, right = max(found, key=lambda each: each[0])
  return right, (
      'cosine of the TF-IDF vectors (sublinear) of both documents; weights and '
      f'threshold ({threshold:.3f}) are fitted on train; validation chooses to '
      f'leave out words in more than {share:.0%} of the documents')


def _right(table, split, threshold):
  return (_cosines(table, split.pairs) >= threshold) == split.labels


def _cosines(table, pairs):
  parts = [table[p[:, 0]].multiply(table[p[:, 1]]).sum(1) for p in np.split(
      pairs, range(_PAIRS_AT_ONCE, len(pairs), _PAIRS_AT_ONCE))]
  return np.concatenate([np.asarray(p).reshape(-1) for p in parts])


def best_threshold(scores, labels) -> float:
  """Returns the t for which `scores >= t` agrees most with `labels`."""
  order = np.argsort(-scores, kind='stable')
  hits = np.cumsum(np.where(labels[order] == 1, 1, -1))
  # No threshold separates equal scores.
  ends = np.append(np.diff(scores[order]) != 0, True)
  return float(scores[order][np.where(ends, hits, -len(hits) - 1).argmax()])
