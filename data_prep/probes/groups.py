"""State tracking: the composition of elements of a group so far.

Merrill et al. 2024, arXiv 2404.08819, sections 3 and 4. `parity`,
`permutations_3` and `permutations_5` are words of 12 elements, 32 for `parity`;
`permutations_5` asks only for the new place of the first thing. The others have
the sizes of Grazzi et al. 2024, arXiv 2411.12537, appendix E.2, 32 elements in
training, and one class per element. `s3_words` and `s5_words` have all
permutations of 3 and 5 things, `a5_words` the even ones of 5. `s5_swaps` has
only permutations that swap two things, `s5_cycles` also those that move three.
"""

import itertools

import numpy as np


def draw_products(rng, lengths_N, group, classes=None, inputs=None):
  """Generates elements of a group, and their composition so far.

  `group[a, b]` is the number of a composed with b, where a comes first. The
  class of an element is its number n, or `classes[n]` if `classes` is given.
  Token t is element `inputs[t]`, or element t of the whole group.
  """
  group = np.asarray(group)
  inputs = np.arange(len(group)) if inputs is None else np.asarray(inputs)
  classes = np.arange(len(group)) if classes is None else np.asarray(classes)
  count, length = len(lengths_N), lengths_N.max()
  tokens = rng.integers(0, len(inputs), (count, length))
  answers = np.zeros_like(tokens)
  product = np.zeros(count, np.int64)
  for t in range(length):
    product = group[product, inputs[tokens[:, t]]]
    answers[:, t] = classes[product] + 1
  return tokens, answers


def permutations(degree: int) -> list[tuple[int, ...]]:
  """Returns all permutations p of `degree` things; p[i] is i's new place."""
  return list(itertools.permutations(range(degree)))


def even(degree: int) -> list[tuple[int, ...]]:
  """Returns the permutations that are products of an even number of swaps."""
  return [p for p in permutations(degree) if sum(
      a > b for a, b in itertools.combinations(p, 2)) % 2 == 0]


def moving(degree: int, *counts: int) -> list[int]:
  """Returns the numbers of the permutations that move so many things.

  A permutation that moves two things is a swap; one of three is a 3-cycle.
  """
  return [number for number, element in enumerate(permutations(degree))
          if sum(i != place for i, place in enumerate(element)) in counts]


def table(elements: list[tuple[int, ...]]) -> list[list[int]]:
  """Returns the table of compositions of `elements` for `draw_products`.

  Element 0 must be the identity.
  """
  number = {element: i for i, element in enumerate(elements)}
  return [[number[tuple(b[x] for x in a)] for b in elements] for a in elements]
