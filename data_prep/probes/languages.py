"""Formal languages of Grazzi et al. 2024, arXiv 2411.12537, appendix E.1.

`formal_parity` is the parity of bits. `modular_arithmetic` and
`modular_arithmetic_brackets` are expressions modulo 5; their last token is `=`.
There is one question, at the last token, in training too. The generators
follow the released code (github.com/automl/unlocking_state_tracking,
xlstm/experiments/data/formal_language). There lengths include the answer, which
is no input: of 3 to 40 tokens, the model reads 2 to 39. Here it reads 3 to 40.
"""

import numpy as np

from lra.data_prep.probes.variant import of_length

MODULUS = 5
# The symbol of each code of an expression.
SYMBOLS = '01234+-*=()'
PLUS, MINUS, TIMES, EQUALS, OPEN, CLOSE = range(MODULUS, len(SYMBOLS))
# Lengths of training sequences.
_SHORTEST, _LONGEST = 3, 40


def at_last(lengths_N: np.ndarray, classes_N: np.ndarray) -> np.ndarray:
  """Returns answers with one question, at the last token, uint8 [N, L]."""
  answers = np.zeros((len(lengths_N), lengths_N.max()), np.uint8)
  answers[np.arange(len(lengths_N)), lengths_N - 1] = classes_N + 1
  return answers


def draw_parity(rng, lengths_N):
  """Generates bits; the answer is their sum modulo 2."""
  tokens = rng.integers(0, 2, (len(lengths_N), lengths_N.max()), np.uint8)
  inside = np.arange(tokens.shape[1]) < lengths_N[:, None]
  return tokens, at_last(lengths_N, (tokens * inside).sum(1) % 2)


def draw_arithmetic(rng, lengths_N):
  """Generates numbers with +, - or * between them, and their value modulo 5.

  The number of tokens is even. Numbers and operators are uniform.
  """
  count, length = len(lengths_N), lengths_N.max()
  tokens = np.zeros((count, length), np.uint8)
  tokens[:, ::2] = numbers = rng.integers(0, MODULUS, (count, length // 2))
  tokens[:, 1::2] = operators = rng.integers(
      PLUS, TIMES + 1, (count, length // 2))
  tokens[np.arange(count), lengths_N - 1] = EQUALS
  # Value of the terms before the current one, and the signed current one.
  terms, term = np.zeros(count, np.int64), numbers[:, 0]
  for i in range(1, length // 2):
    operator = operators[:, i - 1]
    inside = 2 * i < lengths_N
    ends = inside & (operator != TIMES)
    terms = np.where(ends, terms + term, terms)
    sign = np.where(operator == MINUS, -1, 1)
    term = np.where(ends, sign, term) * np.where(inside, numbers[:, i], 1)
    term %= MODULUS
  return tokens, at_last(lengths_N, (terms + term) % MODULUS)


def draw_brackets(rng, lengths_N):
  """Generates expressions with brackets, + and -, and their value modulo 5.

  An expression of 1 to 4 tokens is d, -d, (d) or (-d), with a uniform number d.
  A longer one is (l+r) or (l-r), and the length of l is uniform. All sequences
  are split together, level by level of their brackets.
  """
  count = len(lengths_N)
  tokens = np.zeros((count, lengths_N.max()), np.uint8)
  tokens[np.arange(count), lengths_N - 1] = EQUALS
  # Expressions of the current level: their sequences, first tokens and lengths.
  row, start, size = np.arange(count), np.zeros(count, int), lengths_N - 1
  levels = []
  while len(row):
    ends = size < 5
    value = np.zeros(len(row), np.int64)
    value[ends] = _short(rng, tokens, row[ends], start[ends], size[ends])
    row, start, size = row[~ends], start[~ends], size[~ends]
    left = rng.integers(1, size - 3)
    minus = rng.integers(0, 2, len(row))
    tokens[row, start], tokens[row, start + size - 1] = OPEN, CLOSE
    tokens[row, start + 1 + left] = PLUS + minus
    levels.append((value, ~ends, minus))
    row, start, size = (
        np.tile(row, 2), np.concatenate([start + 1, start + left + 2]),
        np.concatenate([left, size - left - 3]))
  below = np.zeros(0, np.int64)
  for value, split, minus in reversed(levels):
    left, right = np.split(below, 2)
    value[split] = (left + np.where(minus, -right, right)) % MODULUS
    below = value
  return tokens, at_last(lengths_N, below)


def _short(rng, tokens, row, start, size):
  """Writes expressions of 1 to 4 tokens, and returns their values."""
  number = rng.integers(0, MODULUS, len(row))
  minus, brackets = size % 2 == 0, size > 2
  tokens[row[brackets], start[brackets]] = OPEN
  tokens[row[brackets], (start + size - 1)[brackets]] = CLOSE
  tokens[row[minus], (start + brackets)[minus]] = MINUS
  tokens[row, start + brackets + minus] = number
  return np.where(minus, -number, number) % MODULUS


VARIANTS = {
    'formal_parity': of_length(draw_parity, _LONGEST, _SHORTEST),
    'modular_arithmetic': of_length(
        draw_arithmetic, _LONGEST, _SHORTEST, step=2),
    'modular_arithmetic_brackets': of_length(
        draw_brackets, _LONGEST, _SHORTEST, least=2),
}
