"""Associative recall: keys are asked for their values.

`mqar` is multi-query associative recall (Arora et al. 2023, arXiv 2312.04927,
section 3.1). Pairs of a key and a value come first, then the keys again. The
answer at a key is its value. In the paper keys return after gaps, most of them
short. Here 32 pairs leave exactly 32 slots, so the gaps hardly vary.
"""

import numpy as np

from data_prep.content import Split
from data_prep.probes.questions import questions
from data_prep.probes.variant import of_length, same_length

# Exponent of the power law by which keys take slots; Arora et al., section 3.1.
_EARLY = 0.01


def draw_recall(rng, lengths_N, symbols, pairs):
  """Generates pairs of key and value, then each key again as a question.

  The sequence after the pairs has slots of two tokens. Keys take slots at
  random, early slots more often. If there are more slots than keys, later slots
  are mostly blank, as in Arora et al. `VARIANTS['mqar']` has as many slots as
  keys, so all are filled; there an early key is likelier in an early slot.

  Codes: 0 is blank, those below `symbols / 2` are keys, the others are values.
  The first value is class 0. The result is that of `Variant.draw`.
  """
  count, length = same_length(lengths_N)
  half = symbols // 2
  keys = 1 + sample(rng, count, half - 1, pairs)
  values = half + sample(rng, count, half, pairs)
  tokens = np.zeros((count, length), np.uint8)
  answers = np.zeros((count, length), np.uint8)
  tokens[:, 0:2 * pairs:2], tokens[:, 1:2 * pairs:2] = keys, values
  slots = (length - 2 * pairs) // 2
  early = _EARLY * np.arange(1, slots + 1) ** (_EARLY - 1)
  places = 2 * pairs + 2 * sample(rng, count, slots, pairs, early)
  np.put_along_axis(tokens, places, keys, 1)
  np.put_along_axis(answers, places, values - half + 1, 1)
  return tokens, answers


def sample(rng, count, choices, wanted, weights=None):
  """Samples `wanted` different numbers below `choices`, [count, wanted].

  `weights` are the relative chances of the numbers. Taking the largest sums of
  log weight and Gumbel noise is sampling without replacement.
  """
  noise = rng.gumbel(size=(count, choices))
  if weights is not None:
    noise += np.log(weights)
  return np.argsort(-noise, axis=1)[:, :wanted]


VARIANTS = {
    'mqar': of_length(draw_recall, 128, symbols=128, pairs=32)}


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


def _recall(split):
  """Returns three arrays about the questions of `mqar`.

  Returns:
    All values of the question's sequence, as classes, int64 [Q, pairs]; the
    right class and the place of the question, int64 [Q] each.
  """
  sizes = VARIANTS['mqar'].sizes
  sequences, example, place, wanted = questions(split)
  values = sequences[:, 1:2 * sizes['pairs']:2] - sizes['symbols'] // 2
  return values[example], wanted, place
