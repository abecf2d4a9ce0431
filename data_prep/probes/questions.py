"""Finds the questions of generated data, and answers them by simple rules."""

import numpy as np

from data_prep.content import Split

# Number of sequences of a split that baselines read; test has fewer.
_FITTED = 20_000


def asked(split: Split) -> tuple[np.ndarray, np.ndarray]:
  """Returns (index of the example, class) of all questions, int64 [Q] each."""
  documents = split.pairs[:, 1]
  lengths_N = np.diff(split.offsets)[documents]
  example = np.repeat(np.arange(len(documents)), lengths_N)
  # The place of each token: its number in the split, moved to its document.
  moved_N = split.offsets[documents] - np.cumsum(lengths_N) + lengths_N
  answers = split.tokens[np.arange(len(example)) + moved_N[example]]
  some = np.flatnonzero(answers)
  return example[some], answers[some].astype(np.int64) - 1


def questions(split: Split) -> tuple[np.ndarray, ...]:
  """Returns the first sequences of a split, of one length, and their questions.

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


# Baselines return whether a rule is right on each question of `test`: bool [Q].


def majority(train: Split, test: Split) -> np.ndarray:
  """Guesses the commonest class of the questions of `train`."""
  return asked(test)[1] == np.bincount(asked(train)[1]).argmax()


def chance(train: Split, test: Split) -> np.ndarray:
  """Returns the probability that a random class is right, float64 [Q]."""
  return np.full(len(asked(test)[1]), 1 / (1 + asked(train)[1].max()))
