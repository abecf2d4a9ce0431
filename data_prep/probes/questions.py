"""Finds the questions of generated data, and answers them by simple rules."""

import dataclasses

import numpy as np

from lra.data_prep.content import Split

# Number of sequences of a split that baselines read; test has fewer.
_FITTED = 20_000


def asked(split: Split) -> tuple[np.ndarray, ...]:
  """Returns example, place and class of all questions, int64 [Q] each."""
  documents = split.pairs[:, 1]
  lengths_N = np.diff(split.offsets)[documents]
  example = np.repeat(np.arange(len(documents)), lengths_N)
  first_N = np.cumsum(lengths_N) - lengths_N
  place = np.arange(len(example)) - first_N[example]
  answers = split.tokens[split.offsets[documents][example] + place]
  some = np.flatnonzero(answers)
  return example[some], place[some], answers[some].astype(np.int64) - 1


def questions(split: Split) -> tuple[np.ndarray, ...]:
  """Returns the first sequences of a split, of one length, and their questions.

  Returns:
    The sequences, int64 [N, L]; then `asked` of them.
  """
  length = split.offsets[1] - split.offsets[0]
  pairs = split.pairs[:_FITTED]
  sequences = split.tokens.reshape(-1, length)[pairs[:, 0]].astype(np.int64)
  return sequences, *asked(dataclasses.replace(split, pairs=pairs))


# Baselines return whether a rule is right on each question of `test`: bool [Q].


def majority(train: Split, test: Split) -> np.ndarray:
  """Guesses the commonest class of the questions of `train`."""
  return asked(test)[2] == np.bincount(asked(train)[2]).argmax()


def chance(train: Split, test: Split) -> np.ndarray:
  """Returns the probability that a random class is right, float64 [Q].

  Only classes count that train asks for at places where test asks. After an
  even number of swaps, for example, half of the permutations are impossible.
  """
  _, places, classes = asked(train)
  _, tested, _ = asked(test)
  possible = np.unique(classes[np.isin(places, tested)])
  return np.full(len(tested), 1 / len(possible))


def last_tokens(train: Split, test: Split) -> np.ndarray:
  """Guesses the commonest class of train after the same three tokens."""
  return _commonest(train, test, _last_tokens)


def place(train: Split, test: Split) -> np.ndarray:
  """Guesses the commonest class of train at the same position."""
  return _commonest(train, test, lambda split: asked(split)[1])


def _last_tokens(split, width=3):
  """Returns the question's token and those before it as a number, int64 [Q]."""
  example, at, _ = asked(split)
  first = split.offsets[split.pairs[example, 0]]
  codes = np.zeros(len(example), np.int64)
  for back in range(width):
    token = split.tokens[np.maximum(first + at - back, 0)].astype(np.int64)
    codes = codes << 16 | np.where(at < back, 0, token + 1)
  return codes


def _commonest(train, test, hint):
  """Guesses the commonest class of the train questions with the same hint.

  If train has no such question, the guess is wrong.
  """
  hints, number = np.unique(hint(train), return_inverse=True)
  classes = asked(train)[2]
  counts = np.zeros((len(hints), classes.max() + 1), np.int64)
  np.add.at(counts, (number, classes), 1)
  hinted = hint(test)
  at = np.minimum(np.searchsorted(hints, hinted), len(hints) - 1)
  return (hints[at] == hinted) & (counts.argmax(1)[at] == asked(test)[2])


def by_share(train: Split, test: Split) -> np.ndarray:
  """Guesses the classes in their order, as if all were equally frequent."""
  example, _, wanted = asked(test)
  counts_N = np.bincount(example, minlength=len(test))
  number = np.arange(len(example)) - (np.cumsum(counts_N) - counts_N)[example]
  classes = 1 + asked(train)[2].max()
  return wanted == classes * number // counts_N[example]


def commonest_answer(train: Split, test: Split, first: int = 0) -> np.ndarray:
  """Guesses the token of each sequence that is commonest among test's classes.

  Class c is the token with code `first` + c.
  """
  del train
  sequences, example, _, wanted = questions(test)
  classes = np.unique(wanted)
  counts = np.stack([(sequences == first + c).sum(1) for c in classes], 1)
  return classes[counts.argmax(1)][example] == wanted
