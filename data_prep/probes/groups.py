"""State tracking: the composition of elements of a group so far.

`parity`, `permutations_3`, `permutations_5`: Merrill et al. 2024,
arXiv 2404.08819, section 3. A sequence has elements of a group, and the answer
is their composition so far. In `permutations_5` the answer is only the new
place of the first thing under the composition.
"""

import itertools

import numpy as np

from lra.data_prep.probes.variant import of_length


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
  return tokens.astype(np.uint8), answers.astype(np.uint8)


def permutations(degree: int) -> list[tuple[int, ...]]:
  """Returns all permutations p of `degree` things; p[i] is i's new place."""
  return list(itertools.permutations(range(degree)))


def table(elements: list[tuple[int, ...]]) -> list[list[int]]:
  """Returns the table of compositions of `elements` for `draw_products`.

  Element 0 must be the identity.
  """
  number = {element: i for i, element in enumerate(elements)}
  return [[number[tuple(b[x] for x in a)] for b in elements] for a in elements]


VARIANTS = {
    'parity': of_length(
        draw_products, 32, group=table(permutations(2)), last=True),
    'permutations_3': of_length(
        draw_products, 12, group=table(permutations(3)), last=True),
    'permutations_5': of_length(
        draw_products, 12, group=table(permutations(5)),
        classes=[element[0] for element in permutations(5)], last=True),
}
