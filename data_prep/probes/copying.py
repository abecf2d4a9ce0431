"""Copying: symbols among noise are asked for in their order.

`selective_copying` is the task of Gu and Dao 2023, arXiv 2312.00752,
section 4.1.1. A sequence has symbols among noise, then a question for each of
them. The answers are the symbols in their order.
"""

import numpy as np

from data_prep.content import Split
from data_prep.probes.questions import questions
from data_prep.probes.recall import sample
from data_prep.probes.variant import of_length, same_length

# Codes of selective copying: noise, the place of an answer, then symbols.
NOISE, ASK, SYMBOLS = 0, 1, 2


def draw_copying(rng, lengths_N, symbols, copied):
  """Generates `copied` symbols among noise, then a question for each symbol."""
  count, length = same_length(lengths_N)
  wanted = rng.integers(0, symbols, (count, copied))
  places = np.sort(sample(rng, count, length - copied, copied), 1)
  tokens = np.full((count, length), NOISE, np.uint8)
  tokens[:, -copied:] = ASK
  np.put_along_axis(tokens, places, (SYMBOLS + wanted).astype(np.uint8), 1)
  answers = np.zeros((count, length), np.uint8)
  answers[:, -copied:] = wanted + 1
  return tokens, answers


VARIANTS = {
    'selective_copying': of_length(draw_copying, 64, symbols=14, copied=8)}


def commonest_symbol(train: Split, test: Split) -> np.ndarray:
  """Guesses the commonest symbol of each sequence of `selective_copying`."""
  del train
  sequences, example, _, wanted = questions(test)
  symbols = np.arange(VARIANTS['selective_copying'].sizes['symbols'])
  counts = (sequences[:, :, None] == SYMBOLS + symbols).sum(1)
  return counts.argmax(1)[example] == wanted
