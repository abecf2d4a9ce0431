"""Word problems of groups: the composition so far, with one class per element.

The data are those of Merrill et al. 2024, arXiv 2404.08819, section 4, at the
sizes of Grazzi et al. 2024, arXiv 2411.12537, appendix E.2: training on 32
elements, tests on longer words. `s3_words` and `s5_words` have all permutations
of 3 and 5 things, `a5_words` the even ones of 5. `s5_swaps` has only
permutations that swap two things, `s5_cycles` also those that move three.

`permutations_3` and `permutations_5` of `groups` are smaller: words of 12
elements, and in `permutations_5` only the new place of one thing is asked for.
"""

from lra.data_prep.probes.groups import draw_products, permutations, table
from lra.data_prep.probes.variant import of_length

# Elements of a training sequence.
_TRAINED = 32


def even(element: tuple[int, ...]) -> bool:
  """Returns whether a permutation is the product of an even number of swaps."""
  pairs = ((a, b) for i, a in enumerate(element) for b in element[i + 1:])
  return sum(a > b for a, b in pairs) % 2 == 0


def moving(degree: int, *counts: int) -> list[int]:
  """Returns the numbers of the permutations that move so many things.

  A permutation that moves two things is a swap; one of three is a 3-cycle.
  """
  return [number for number, element in enumerate(permutations(degree))
          if sum(i != place for i, place in enumerate(element)) in counts]


def _words(elements, **others):
  return of_length(draw_products, _TRAINED, last=True, group=table(elements),
                   **others)


VARIANTS = {
    's3_words': _words(permutations(3)),
    's5_words': _words(permutations(5)),
    's5_swaps': _words(permutations(5), inputs=moving(5, 2)),
    's5_cycles': _words(permutations(5), inputs=moving(5, 2, 3)),
    'a5_words': _words([p for p in permutations(5) if even(p)]),
}
