"""In-context language learning: each sequence has a random automaton.

`regbench_mini` is a small form of RegBench (Akyurek et al. 2024,
arXiv 2401.12973, section 3; github.com/berlino/seq_icl, `dataloaders/dfa.py`).
A sequence has words of a language, which a model must learn from the sequence
itself. RegBench asks a model for the next letter, and counts a letter that the
language allows as right. Here a question is a letter, and the answer is whether
the language allows it there: class 1, or class 0.
"""

import numpy as np

from lra.data_prep.content import Split
from lra.data_prep.probes.questions import questions

# The code of the end of a word; letters follow.
END = 0
# The chance that a word ends after a letter.
_END = 0.1


def draw_words(rng, lengths_N, letters, states, most, asked):
  """Generates words of a random automaton, then a word with illegal letters.

  The automaton has `states` states, all of them accepting. Each has 1 to `most`
  outgoing edges with different letters, to different other states, as in the
  released code. A word starts in state 0, and each edge of a state is equally
  likely. The last `asked` letters of a sequence are questions: with the chance
  1/2 a letter is legal; else it is illegal, and the state stays.
  """
  count, length = len(lengths_N), int(lengths_N.max())
  row = np.arange(count)
  target = _automata(rng, count, letters, states, most)
  tokens = np.zeros((count, length), np.uint8)
  answers = np.zeros((count, length), np.uint8)
  state = np.zeros(count, np.int64)
  for t in range(length):
    question = t >= lengths_N - asked
    legal = ~question | (rng.random(count) < 0.5)
    # Before the first question a word ends, so that the state is known.
    ended = ~question & ((rng.random(count) < _END) | (
        t == lengths_N - asked - 1))
    allowed = target[row, state] >= 0
    letter = (rng.random((count, letters), np.float32) * (
        allowed == legal[:, None])).argmax(1)
    tokens[:, t] = np.where(ended, END, 1 + letter)
    answers[:, t] = np.where(question, 1 + legal, 0)
    state = np.where(ended, 0, np.where(
        legal, target[row, state, letter], state))
  return tokens, answers


def _automata(rng, count, letters, states, most):
  """Returns the next state for each letter, -1 if illegal, [count, S, A]."""
  target = np.full((count, states, letters), -1, np.int8)
  degree = rng.integers(1, most + 1, (count, states))
  letter = rng.random((count, states, letters)).argsort(2)[:, :, :most]
  step = 1 + rng.random((count, states, states - 1)).argsort(2)[:, :, :most]
  # A step of 1 ... states - 1 leads to another state.
  to = (np.arange(states)[:, None] + step) % states
  to = np.where(np.arange(most) < degree[:, :, None], to, -1)
  np.put_along_axis(target, letter, to.astype(np.int8), 2)
  return target


def known_pair(train: Split, test: Split) -> np.ndarray:
  """Calls a letter legal if it followed the last legal token before.

  The rule knows the pairs of neighbours in the words without questions, and the
  right answers to earlier questions. It does not know states.
  """
  del train
  sequences, example, place, wanted = questions(test)
  first = place[np.flatnonzero(np.diff(example, prepend=-1))]
  codes = sequences.max() + 1
  seen = np.zeros((len(sequences), codes, codes), bool)
  rows = np.arange(len(sequences))
  last = np.full(len(sequences), END)
  right = []
  answer = np.full(sequences.shape, -1)
  answer[example, place] = wanted
  for t in range(sequences.shape[1]):
    token, question = sequences[:, t], t >= first
    right.append((seen[rows, last, token] == answer[:, t])[question])
    legal = ~question | (answer[:, t] == 1)
    seen[rows[legal & ~question], last[legal & ~question],
         token[legal & ~question]] = True
    last = np.where(legal, token, last)
  # All sequences have as many questions, so rows of `right` are places.
  return np.stack(right[first[0]:], 1).reshape(-1)
