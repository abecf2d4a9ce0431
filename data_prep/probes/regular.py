"""Tasks of the Chomsky hierarchy: Deletang et al. 2022, arXiv 2207.02098.

`even_pairs` and `cycle_navigation` are its regular tasks that are not in
`languages`; `missing_duplicate` and `bucket_sort` are context-sensitive. Each
follows the released code (github.com/google-deepmind/
neural_networks_chomsky_hierarchy, tasks/). Training strings have up to 40
symbols. There the model reads one empty token for each symbol of the output,
and answers at these. Here `bucket_sort` has them, but the other tasks answer at
the last token of the string.
"""

import numpy as np

from lra.data_prep.content import Split
from lra.data_prep.probes.languages import at_last
from lra.data_prep.probes.questions import asked, relative_places
from lra.data_prep.probes.variant import (
  CHOSEN,
  SCORED,
  TRAINED,
  Part,
  Variant,
  of_length,
)

# Symbols of the longest training string.
_LONGEST = 40
_CYCLE = 5
_SORTED = 5
# Codes of missing_duplicate after those of the bits.
MISSING, FILLING = 2, 3


def draw_even_pairs(rng, lengths_N):
  """Generates bits; asks whether 01 and 10 occur an odd number of times.

  This is so if the first and the last bit differ.
  """
  tokens = rng.integers(0, 2, (len(lengths_N), lengths_N.max()), np.uint8)
  last_N = tokens[np.arange(len(tokens)), lengths_N - 1]
  return tokens, at_last(lengths_N, tokens[:, 0] ^ last_N)


def draw_cycle(rng, lengths_N):
  """Generates steps on a cycle of 5 places; asks for the place at the end.

  Codes 0, 1 and 2 are a step back, none and a step forward.
  """
  tokens = rng.integers(0, 3, (len(lengths_N), lengths_N.max()), np.uint8)
  inside = np.arange(tokens.shape[1]) < lengths_N[:, None]
  steps = np.where(inside, tokens.astype(np.int64) - 1, 0)
  return tokens, at_last(lengths_N, steps.sum(1) % _CYCLE)


def draw_missing(rng, lengths_N):
  """Generates bits twice, one of which is hidden; asks for that bit.

  If the length is odd, the last token is a filling.
  """
  count, half_N = len(lengths_N), lengths_N // 2
  bits = rng.integers(0, 2, (count, half_N.max()), np.uint8)
  place_L = np.arange(lengths_N.max())
  tokens = np.take_along_axis(bits, place_L % half_N[:, None], 1)
  tokens[place_L >= 2 * half_N[:, None]] = FILLING
  hidden_N = rng.integers(0, 2 * half_N)
  missing_N = tokens[np.arange(count), hidden_N]
  tokens[np.arange(count), hidden_N] = MISSING
  return tokens, at_last(lengths_N, missing_N)


def draw_sort(rng, lengths_N):
  """Generates symbols, then a question for each: the symbols in their order.

  Code 5 is the place of a question. The number of tokens is even.
  """
  half_N = lengths_N[:, None] // 2
  place_L = np.arange(lengths_N.max())
  tokens = rng.integers(
      0, _SORTED, (len(lengths_N), len(place_L)), np.uint8)
  tokens[place_L >= half_N] = _SORTED
  ordered = np.sort(tokens, 1)
  answers = 1 + np.take_along_axis(
      ordered, np.maximum(place_L - half_N, 0), 1)
  answers[(place_L < half_N) | (place_L >= 2 * half_N)] = 0
  return tokens, answers


VARIANTS = {
    'even_pairs': of_length(draw_even_pairs, _LONGEST, 1),
    'cycle_navigation': of_length(draw_cycle, _LONGEST, 1),
    'missing_duplicate': of_length(draw_missing, _LONGEST, 2, least=2),
    # Validation and test have one length, so that each sequence has as many
    # questions as the others.
    'bucket_sort': Variant(
        draw_sort, {}, (Part(TRAINED, 2 * _LONGEST, 2),),
        (Part(CHOSEN, 2 * _LONGEST),), (Part(SCORED, 2 * _LONGEST),),
        step=2, least=2),
}


def by_share(train: Split, test: Split) -> np.ndarray:
  """Guesses the symbols of `bucket_sort` as if all were equally frequent."""
  del train
  place, count = relative_places(test)
  return asked(test)[1] == _SORTED * place // count
