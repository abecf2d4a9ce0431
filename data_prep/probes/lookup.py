"""Lookup: an entry of a list is asked for its number.

`phonebook` is a small form of the phone book of Jelassi et al. 2024,
arXiv 2402.01032, section 4.2. Entries of a name and a number come first, then
one of the names again. The answers are the digits of its number. Each is asked
for at the token before it, so a model gets the earlier digits.
"""

import numpy as np

from lra.data_prep.content import Split
from lra.data_prep.probes.questions import questions
from lra.data_prep.probes.recall import sample
from lra.data_prep.probes.variant import of_length, same_length

# Codes of `phonebook`: blank, the question, digits, then letters.
BLANK, ASK, DIGITS, LETTERS = 0, 1, 2, 12
# Letters of a name, and digits of a number.
NAME, NUMBER = 2, 4


def draw_phonebook(rng, lengths_N, letters):
  """Generates entries, then a question for one of them.

  Blanks come first if the length is no multiple of an entry's length.
  """
  count, length = same_length(lengths_N)
  size, asked = NAME + NUMBER, NAME + NUMBER  # `ASK` and all but one digit
  entries = (length - asked) // size
  names = sample(rng, count, letters**NAME, entries)
  names = LETTERS + np.stack([names // letters, names % letters], 2)
  numbers = rng.integers(0, 10, (count, entries, NUMBER))
  book = np.concatenate([names, DIGITS + numbers], 2).reshape(count, -1)
  row, entry = np.arange(count), rng.integers(0, entries, count)
  name, number = names[row, entry], numbers[row, entry]
  tokens = np.full((count, length), BLANK, np.uint8)
  tokens[:, -asked - book.shape[1]:-asked] = book
  tokens[:, -asked] = ASK
  tokens[:, -asked + 1:-NUMBER + 1] = name
  tokens[:, -NUMBER + 1:] = DIGITS + number[:, :-1]
  answers = np.zeros((count, length), np.uint8)
  answers[:, -NUMBER:] = number + 1
  return tokens, answers


VARIANTS = {'phonebook': of_length(draw_phonebook, 102, letters=26)}


def same_token(train: Split, test: Split) -> np.ndarray:
  """Guesses the digit after the last earlier occurrence of the same token."""
  del train
  sequences, example, place, wanted = questions(test)
  seen, row = sequences[example], np.arange(len(place))
  digit = (seen >= DIGITS) & (seen < LETTERS)
  fits = (seen[:, :-1] == seen[row, place][:, None]) & digit[:, 1:]
  fits &= np.arange(seen.shape[1] - 1) < place[:, None] - 1
  earlier = fits.shape[1] - 1 - fits[:, ::-1].argmax(1)
  return fits.any(1) & (seen[row, earlier + 1] - DIGITS == wanted)
