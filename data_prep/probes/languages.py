"""Formal languages: parity, expressions, regular tasks, sorting, brackets.

Grazzi et al. 2024, arXiv 2411.12537, appendix E.1: `formal_parity`,
`modular_arithmetic` and `modular_arithmetic_brackets`. There is one question,
at the last token, in training too. The generators follow the released code
(github.com/automl/unlocking_state_tracking,
xlstm/experiments/data/formal_language). There lengths include the answer, which
is no input: of 3 to 40 tokens, the model reads 2 to 39. Here it reads 3 to 40.

Deletang et al. 2022, arXiv 2207.02098, the Chomsky hierarchy: `even_pairs` and
`cycle_navigation` are regular, `missing_duplicate` and `bucket_sort` are
context-sensitive. Each follows the released code (github.com/google-deepmind/
neural_networks_chomsky_hierarchy, tasks/). There the model reads one empty
token for each symbol of the output, and answers at these. Here `bucket_sort`
has them, but the other tasks answer at the last token of the string.

`dyck`: Hewitt et al. 2020, arXiv 2010.07515, section 2, define Dyck-(k, m) as
the balanced strings of k types of brackets whose depth is at most m. Our sizes
are k = 8 and m = 10.
"""

import numpy as np

from lra.data_prep.probes.variant import at_last

MODULUS = 5
# The symbol of each code of an expression.
SYMBOLS = '01234+-*=()'
PLUS, MINUS, TIMES, EQUALS, OPEN, CLOSE = range(MODULUS, len(SYMBOLS))
_CYCLE = 5
_SORTED = 5
# Codes of missing_duplicate after those of the bits.
MISSING, FILLING = 2, 3


def _uniform(rng, lengths_N, codes):
  # Codes, uint8 [N, L], and which of them are inside a sequence.
  tokens = rng.integers(0, codes, (len(lengths_N), lengths_N.max()), np.uint8)
  return tokens, np.arange(tokens.shape[1]) < lengths_N[:, None]


def draw_parity(rng, lengths_N):
  """Generates bits; the answer is their sum modulo 2."""
  tokens, inside = _uniform(rng, lengths_N, 2)
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
  # Writes expressions of 1 to 4 tokens, and returns their values.
  number = rng.integers(0, MODULUS, len(row))
  minus, brackets = size % 2 == 0, size > 2
  tokens[row[brackets], start[brackets]] = OPEN
  tokens[row[brackets], (start + size - 1)[brackets]] = CLOSE
  tokens[row[minus], (start + brackets)[minus]] = MINUS
  tokens[row, start + brackets + minus] = number
  return np.where(minus, -number, number) % MODULUS


def draw_even_pairs(rng, lengths_N):
  """Generates bits; asks whether 01 and 10 occur an odd number of times.

  This is so if the first and the last bit differ.
  """
  tokens, _ = _uniform(rng, lengths_N, 2)
  last_N = tokens[np.arange(len(tokens)), lengths_N - 1]
  return tokens, at_last(lengths_N, tokens[:, 0] ^ last_N)


def draw_cycle(rng, lengths_N):
  """Generates steps on a cycle of 5 places; asks for the place at the end.

  Codes 0, 1 and 2 are a step back, none and a step forward.
  """
  tokens, inside = _uniform(rng, lengths_N, 3)
  steps = np.where(inside, tokens.astype(np.int64) - 1, 0)
  return tokens, at_last(lengths_N, steps.sum(1) % _CYCLE)


def draw_missing(rng, lengths_N):
  """Generates bits twice, one of which is hidden; asks for that bit.

  If the length is odd, the last token is a filling.
  """
  count, half_N = len(lengths_N), lengths_N // 2
  bits, _ = _uniform(rng, half_N, 2)
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
  half_N, (tokens, _) = lengths_N[:, None] // 2, _uniform(
      rng, lengths_N, _SORTED)
  place_L = np.arange(tokens.shape[1])
  tokens[place_L >= half_N] = _SORTED
  answers = 1 + np.take_along_axis(
      np.sort(tokens, 1), np.maximum(place_L - half_N, 0), 1)
  answers[(place_L < half_N) | (place_L >= 2 * half_N)] = 0
  return tokens, answers


def draw_dyck(rng, lengths_N, types, depth):
  """Generates prefixes of Dyck-(types, depth); asks which type may close next.

  Codes below `types` open a bracket, `types + i` closes type i. Class 0 is that
  no bracket may close, class i + 1 that type i may. Each next bracket opens or
  closes with equal chance, unless only one of these is possible, and types are
  uniform.
  """
  count, length = len(lengths_N), lengths_N.max()
  opens = rng.integers(0, 2, (count, length)) == 1
  tokens, _ = _uniform(rng, lengths_N, types)
  answers = np.zeros((count, length), np.uint8)
  # The open brackets' classes: `stack[:, d]` is that of depth d.
  stack, row = np.zeros((count, depth + 1), np.uint8), np.arange(count)
  current = np.zeros(count, np.int64)
  for t in range(length):
    up = (opens[:, t] | (current == 0)) & (current < depth)
    closed = stack[row, current]
    current += np.where(up, 1, -1)
    stack[row[up], current[up]] = tokens[up, t] + 1
    tokens[~up, t] = types + closed[~up] - 1
    answers[:, t] = stack[row, current] + 1
  return tokens, answers
