"""Probes: small tasks that each test one ability of a mechanism.

The papers train causal models on them. Here a mechanism that is not causal
reads in both directions, so at a question it also sees later questions.

An example is a pair of documents of equal length: a sequence, and the answer at
each of its tokens. In the answers, code 0 marks a token without a question, and
code c + 1 means class c. Nothing is stored: each read generates the data anew
from one seed, which takes a second.

* `mqar`: multi-query associative recall (Arora et al. 2023, arXiv 2312.04927,
  section 3.1). Pairs of a key and a value come first, then the keys again. The
  answer at a key is its value. In the paper keys return after gaps, most of
  them short. Here 32 pairs leave exactly 32 slots, so the gaps hardly vary
  (`draw_recall`).
* `selective_copying` (Gu and Dao 2023, arXiv 2312.00752, section 4.1.1).
  A sequence has symbols among noise, then a question for each of them. The
  answers are the symbols in their order.
* `parity`, `permutations_3`, `permutations_5`: state tracking (Merrill et al.
  2024, arXiv 2404.08819, section 3). A sequence has elements of a group, and
  the answer is their composition so far. In `permutations_5` the answer is only
  the new place of the first thing under the composition. Training has a
  question at every token, so short compositions are learnt first. Validation
  and test have one question, at the last token, since early ones are easy.
"""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np

from data_prep.content import SPLITS, Content, Split, fingerprint

_SEED = 0
# Exponent of the power law by which keys take slots; Arora et al., section 3.1.
_EARLY = 0.01

# Number of sequences of a split that baselines read; test has fewer.
_FITTED = 20_000

# Codes of selective copying: noise, the place of an answer, then symbols.
NOISE, ASK, SYMBOLS = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Variant:
  """A probe and its size.

  Attributes:
    draw: (rng, examples, L, **sizes) -> tokens and answers, uint8 [N, L] each.
    length: L.
    sizes: other arguments of `draw`.
    last: whether validation and test have one question, at the last token.
    counts: examples of train, val and test.
  """
  draw: Callable
  length: int
  sizes: dict
  last: bool = False
  counts: tuple[int, int, int] = (128_000, 1000, 2000)


def draw_recall(rng, count, length, symbols, pairs):
  """Generates pairs of key and value, then each key again as a question.

  The sequence after the pairs has slots of two tokens. Keys take slots at
  random, early slots more often. If there are more slots than keys, later slots
  are mostly blank, as in Arora et al. `VARIANTS['mqar']` has as many slots as
  keys, so all are filled; there an early key is likelier in an early slot.

  Codes: 0 is blank, those below `symbols / 2` are keys, the others are values.
  The first value is class 0. The result is that of `Variant.draw`.
  """
  half = symbols // 2
  keys = 1 + _some(rng, count, half - 1, pairs)
  values = half + _some(rng, count, half, pairs)
  tokens = np.zeros((count, length), np.uint8)
  answers = np.zeros((count, length), np.uint8)
  tokens[:, 0:2 * pairs:2], tokens[:, 1:2 * pairs:2] = keys, values
  slots = (length - 2 * pairs) // 2
  early = _EARLY * np.arange(1, slots + 1) ** (_EARLY - 1)
  places = 2 * pairs + 2 * _some(rng, count, slots, pairs, early)
  np.put_along_axis(tokens, places, keys, 1)
  np.put_along_axis(answers, places, values - half + 1, 1)
  return tokens, answers


def draw_copying(rng, count, length, symbols, copied):
  """Generates `copied` symbols among noise, then a question for each symbol."""
  wanted = rng.integers(0, symbols, (count, copied))
  places = np.sort(_some(rng, count, length - copied, copied), 1)
  tokens = np.full((count, length), NOISE, np.uint8)
  tokens[:, -copied:] = ASK
  np.put_along_axis(tokens, places, (SYMBOLS + wanted).astype(np.uint8), 1)
  answers = np.zeros((count, length), np.uint8)
  answers[:, -copied:] = wanted + 1
  return tokens, answers


def draw_products(rng, count, length, group, classes=None):
  """Generates elements of a group, and their composition so far.

  `group[a, b]` is the number of a composed with b, where a comes first. The
  class of an element is its number n, or `classes[n]` if `classes` is given.
  """
  group = np.asarray(group)
  classes = np.arange(len(group)) if classes is None else np.asarray(classes)
  tokens = rng.integers(0, len(group), (count, length))
  answers = np.zeros_like(tokens)
  product = np.zeros(count, np.int64)
  for t in range(length):
    product = group[product, tokens[:, t]]
    answers[:, t] = classes[product] + 1
  return tokens.astype(np.uint8), answers.astype(np.uint8)


def permutations(degree: int) -> list[tuple[int, ...]]:
  """Returns all permutations p of `degree` things; p[i] is i's new place."""
  return list(itertools.permutations(range(degree)))


def table(elements: list[tuple[int, ...]]) -> list[list[int]]:
  """Returns the table of compositions of `elements` for `draw_products`.

  Element 0 must be the identity.
  """
  number = {element: i for i, element in enumerate(elements)}
  return [[number[tuple(b[x] for x in a)] for b in elements] for a in elements]


def _some(rng, count, choices, wanted, weights=None):
  """Samples `wanted` different numbers below `choices`, [count, wanted].

  `weights` are the relative chances of the numbers. Taking the largest sums of
  log weight and Gumbel noise is sampling without replacement.
  """
  noise = rng.gumbel(size=(count, choices))
  if weights is not None:
    noise += np.log(weights)
  return np.argsort(-noise, axis=1)[:, :wanted]


VARIANTS = {
    'mqar': Variant(draw_recall, 128, dict(symbols=128, pairs=32)),
    'selective_copying': Variant(
        draw_copying, 64, dict(symbols=14, copied=8)),
    'parity': Variant(
        draw_products, 32, dict(group=table(permutations(2))), last=True),
    'permutations_3': Variant(
        draw_products, 12, dict(group=table(permutations(3))), last=True),
    'permutations_5': Variant(
        draw_products, 12, dict(
            group=table(permutations(5)),
            classes=[element[0] for element in permutations(5)]), last=True),
}


def generate(variant: Variant) -> Content:
  """Generates the data of a variant from a fixed seed; all labels are 0."""
  documents, splits, first = [], {}, 0
  for stream, (name, count) in enumerate(
      zip(SPLITS, variant.counts, strict=True)):
    rng = np.random.default_rng([_SEED, stream])
    tokens, answers = variant.draw(
        rng, count, variant.length, **variant.sizes)
    if variant.last and name != 'train':
      answers[:, :-1] = 0
    documents.append(np.stack([tokens, answers], 1).reshape(-1))
    splits[name] = first + np.arange(2 * count).reshape(count, 2)
    first += 2 * count
  tokens = np.concatenate(documents)
  offsets = np.arange(0, len(tokens) + 1, variant.length)
  splits = {
      name: Split(tokens, offsets, np.zeros(len(pairs), np.int32),
                  pairs.astype(np.int32))
      for name, pairs in splits.items()}
  return Content(splits, {'origin': f'generated with seed {_SEED}',
                          'fingerprint': fingerprint(splits)})


def asked(split: Split) -> tuple[np.ndarray, np.ndarray]:
  """Returns (index of the example, class) of all questions, int [Q] each."""
  length = split.offsets[1] - split.offsets[0]
  answers = split.tokens.reshape(-1, length)[split.pairs[:, 1]]
  example, place = np.nonzero(answers)
  return example, answers[example, place].astype(np.int64) - 1


# Baselines return whether a rule is right on each question of `test`: bool [Q].


def majority(train: Split, test: Split) -> np.ndarray:
  """Guesses the commonest class of the questions of `train`."""
  return asked(test)[1] == np.bincount(asked(train)[1]).argmax()


def chance(train: Split, test: Split) -> np.ndarray:
  """Returns the probability that a random class is right, float64 [Q]."""
  return np.full(len(asked(test)[1]), 1 / (1 + asked(train)[1].max()))


def any_value(train: Split, test: Split) -> np.ndarray:
  """Guesses the first value of each sequence of `mqar`."""
  del train
  values, wanted, _ = _recall(test)
  return values[:, 0] == wanted


def by_place(train: Split, test: Split) -> np.ndarray:
  """Guesses the value of the pair that train asks for most at this position.

  Questions of `mqar` about early pairs tend to come early, so the position of a
  question hints at its pair.
  """
  values, wanted, place = _recall(train)
  length = VARIANTS['mqar'].length
  asked_of = np.zeros((length, values.shape[1]), np.int64)
  np.add.at(asked_of, (place, (values == wanted[:, None]).argmax(1)), 1)
  values, wanted, place = _recall(test)
  pair = asked_of.argmax(1)[place]
  return np.take_along_axis(values, pair[:, None], 1)[:, 0] == wanted


def commonest_symbol(train: Split, test: Split) -> np.ndarray:
  """Guesses the commonest symbol of each sequence of `selective_copying`."""
  del train
  sequences, example, _, wanted = _questions(test)
  symbols = np.arange(VARIANTS['selective_copying'].sizes['symbols'])
  counts = (sequences[:, :, None] == SYMBOLS + symbols).sum(1)
  return counts.argmax(1)[example] == wanted


def _recall(split):
  """Returns three arrays about the questions of `mqar`.

  Returns:
    All values of the question's sequence, as classes, int64 [Q, pairs]; the
    right class and the place of the question, int64 [Q] each.
  """
  sizes = VARIANTS['mqar'].sizes
  sequences, example, place, wanted = _questions(split)
  values = sequences[:, 1:2 * sizes['pairs']:2] - sizes['symbols'] // 2
  return values[example], wanted, place


def _questions(split):
  """Returns the first `_FITTED` sequences and their questions.

  Returns:
    The sequences, int64 [N, L]; then, for each question, the number of its
    sequence, its place and its class, int64 [Q] each.
  """
  length = split.offsets[1] - split.offsets[0]
  codes = split.tokens.reshape(-1, length)[split.pairs[:_FITTED]]
  sequences, answers = codes[:, 0].astype(np.int64), codes[:, 1]
  example, place = np.nonzero(answers)
  return (sequences, example, place,
          answers[example, place].astype(np.int64) - 1)
