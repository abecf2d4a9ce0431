"""Brackets of several types and bounded depth: the language Dyck-(k, m).

Hewitt et al. 2020, arXiv 2010.07515, section 2, define Dyck-(k, m) as the
balanced strings of k types of brackets whose depth is at most m. A sequence of
`dyck` is a prefix of such a string. The question at a token is which closing
bracket may come next: none if the prefix is balanced, else that of the last
open bracket. Our sizes are k = 8 and m = 10. Each next bracket opens or closes
with equal chance, unless only one of these is possible, and types are uniform.
"""

import numpy as np

from lra.data_prep.probes.variant import of_length


def draw_dyck(rng, lengths_N, types, depth):
  """Generates prefixes of Dyck-(types, depth).

  Codes below `types` open a bracket, `types + i` closes type i. Class 0 is that
  no bracket may close, class i + 1 that type i may.
  """
  count, length = len(lengths_N), lengths_N.max()
  opens = rng.integers(0, 2, (count, length)) == 1
  tokens = rng.integers(0, types, (count, length), np.uint8)
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


VARIANTS = {'dyck': of_length(draw_dyck, 40, 2, last=True, types=8, depth=10)}
