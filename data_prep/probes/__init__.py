"""Probes: small generated tasks that each test one ability of a mechanism.

The papers train causal models on them. Here a mechanism that is not causal
reads in both directions, so at a question it also sees later questions.

An example is a pair of documents of equal length: a sequence, and the answer at
each of its tokens. In the answers, code 0 marks a token without a question, and
code c + 1 means class c. Nothing is stored: each read generates the data anew
from one seed, which takes a second.

Each file has one family of probes: how they are drawn, and simple rules that
answer their questions.
"""

import numpy as np

from lra.data_prep.content import SPLITS, Content, Split, fingerprint
from lra.data_prep.probes import (
  automata,
  copying,
  dyck,
  groups,
  languages,
  lookup,
  mad,
  recall,
  regular,
  words,
)
from lra.data_prep.probes.variant import Part, Variant

_SEED = 0
# Sequences in a test of another length.
_LONGER = 1000

VARIANTS = {
    **recall.VARIANTS, **copying.VARIANTS, **groups.VARIANTS, **words.VARIANTS,
    **languages.VARIANTS, **regular.VARIANTS, **dyck.VARIANTS,
    **lookup.VARIANTS, **automata.VARIANTS, **mad.VARIANTS}


def generate(variant: Variant) -> Content:
  """Generates the data of a variant from a fixed seed; all labels are 0."""
  documents, lengths, splits, first = [], [], {}, 0
  for stream, name in enumerate(SPLITS):
    rng = np.random.default_rng([_SEED, stream])
    begun = first
    for part in getattr(variant, name):
      tokens, lengths_N = _documents(
          variant, part, rng, last=variant.last and name != 'train')
      documents.append(tokens)
      lengths.append(np.repeat(lengths_N, 2))
      first += 2 * part.count
    splits[name] = np.arange(begun, first, dtype=np.int32).reshape(-1, 2)
  tokens = np.concatenate(documents)
  offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
  splits = {name: _split(tokens, offsets, pairs)
            for name, pairs in splits.items()}
  return Content(splits, {'origin': f'generated with seed {_SEED}',
                          'fingerprint': fingerprint(splits)})


def generate_longer(variant: Variant, length: int, shortest: int) -> Split:
  """Generates a test of lengths from `shortest` to `length`.

  Its sequences differ from those of `generate`, and depend on the lengths only.
  """
  rng = np.random.default_rng([_SEED, len(SPLITS), shortest, length])
  return _test(variant, rng, Part(
      _LONGER, length, shortest, variant.longer(length)))


def generate_test(variant: Variant, name: str) -> Split:
  """Generates the test `name` of `Variant.tests`.

  Its sequences differ from those of `generate` and of the other tests.
  """
  number = list(variant.tests).index(name)
  rng = np.random.default_rng([_SEED, len(SPLITS) + 1, number])
  return _test(variant, rng, variant.tests[name])


def _test(variant, rng, part):
  tokens, lengths_N = _documents(variant, part, rng, last=variant.last)
  offsets = np.concatenate([[0], np.cumsum(np.repeat(lengths_N, 2))])
  return _split(tokens, offsets, np.arange(
      2 * part.count, dtype=np.int32).reshape(-1, 2))


def _documents(variant, part, rng, last):
  """Draws sequences and their answers, one after the other.

  Returns:
    The codes of all documents, and the lengths of the sequences, int64 [N].
  """
  lengths_N = variant.lengths(rng, part)
  tokens, answers = variant.draw(
      rng, lengths_N, **{**variant.sizes, **part.sizes})
  place_L = np.arange(tokens.shape[1])
  if last:
    answers = answers * (place_L == lengths_N[:, None] - 1)
  both_Nx2xL = np.stack([tokens, answers.astype(tokens.dtype)], 1)
  kept = np.broadcast_to(
      place_L < lengths_N[:, None, None], both_Nx2xL.shape)
  return both_Nx2xL[kept], lengths_N


def _split(tokens, offsets, pairs):
  return Split(tokens, offsets, np.zeros(len(pairs), np.int32), pairs)
