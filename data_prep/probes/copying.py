"""Copying: symbols among noise are asked for in their order.

`selective_copying` is the task of Gu and Dao 2023, arXiv 2312.00752,
section 4.1.1. A sequence has symbols among noise, then a question for each of
them. The answers are the symbols in their order.

`copying` has no noise: symbols, a pause, a sign, then a question for each
symbol. It is the copying memory task of Jing et al. 2017, arXiv 1612.05231,
section 4.1, with the lengths of github.com/NicolasZucchet/minimal-LRU (20
symbols and a pause of 5). There a symbol is a vector of 7 bits; here it is one
of 8 codes. A mechanism needs no content for it, only memory.
"""

import numpy as np

from lra.data_prep.content import Split
from lra.data_prep.probes.questions import questions
from lra.data_prep.probes.recall import sample
from lra.data_prep.probes.variant import of_length, same_length

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


def draw_plain_copying(rng, lengths_N, symbols, pause):
  """Generates symbols, a pause, the sign, then a question for each symbol.

  `ASK` is the sign, and noise fills the pause and the places of the answers. A
  pause is longer by one if the length has another parity.
  """
  count, length = same_length(lengths_N)
  copied = (length - pause - 1) // 2
  wanted = rng.integers(0, symbols, (count, copied))
  tokens = np.full((count, length), NOISE, np.uint8)
  answers = np.zeros((count, length), np.uint8)
  tokens[:, :copied] = SYMBOLS + wanted
  tokens[:, -copied - 1] = ASK
  answers[:, -copied:] = wanted + 1
  return tokens, answers


VARIANTS = {
    'copying': of_length(draw_plain_copying, 46, symbols=8, pause=5),
    'selective_copying': of_length(draw_copying, 64, symbols=14, copied=8)}


def commonest_symbol(train: Split, test: Split) -> np.ndarray:
  """Guesses the commonest symbol of each sequence of `selective_copying`."""
  del train
  sequences, example, _, wanted = questions(test)
  symbols = np.arange(VARIANTS['selective_copying'].sizes['symbols'])
  counts = (sequences[:, :, None] == SYMBOLS + symbols).sum(1)
  return counts.argmax(1)[example] == wanted
