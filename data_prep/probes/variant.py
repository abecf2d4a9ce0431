"""Describes generated data: how sequences are drawn, and how many."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

TRAINED, CHOSEN, SCORED = 128_000, 1000, 2000


@dataclasses.dataclass(frozen=True)
class Part:
  """Sequences of one length, or of lengths drawn uniformly from a range.

  Attributes:
    count: number of sequences.
    length: their length L, or the longest one.
    shortest: the shortest length; by default all have `length`.
    sizes: arguments of `Variant.draw` that differ from `Variant.sizes`.
  """
  count: int
  length: int
  shortest: int | None = None
  sizes: Mapping = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Variant:
  """A probe and its size.

  Attributes:
    draw: (rng, lengths int64 [N], **sizes) -> tokens and answers. Both are
      unsigned integers [N, max(lengths)]; entries beyond a sequence's length
      are ignored. Answer 0 marks a token without a question, c + 1 is class c.
    sizes: other arguments of `draw`.
    train, val, test: the parts of each split.
    last: whether val, test and longer tests have one question, at the last
      token. Training has all questions, since early ones are easy to learn.
    longer: (length) -> changes of `sizes` in a test of that length.
    tests: name -> another test of a given size, such as a published one.
  """
  draw: Callable
  sizes: Mapping
  train: tuple[Part, ...]
  val: tuple[Part, ...]
  test: tuple[Part, ...]
  last: bool = False
  longer: Callable[[int], Mapping] = lambda length: {}
  tests: Mapping[str, Part] = dataclasses.field(default_factory=dict)

  @property
  def length(self) -> int:
    """Length of the longest training sequence."""
    return max(part.length for part in self.train)


def of_length(draw: Callable, length: int, shortest: int | None = None, *,
              counts=(TRAINED, CHOSEN, SCORED), last: bool = False,
              longer: Callable = Variant.longer, **sizes) -> Variant:
  """Returns a variant whose splits have sequences of the same lengths.

  Args:
    draw, last, longer, sizes: as in `Variant`.
    length, shortest: as in `Part`.
    counts: sequences of train, val and test.
  """
  train, val, test = ((Part(count, length, shortest),) for count in counts)
  return Variant(draw, sizes, train, val, test, last, longer)


def unsigned(symbols: int) -> type:
  """Returns the smallest unsigned dtype for codes and answers 0 ... symbols.
  """
  return np.uint8 if symbols < 256 else np.uint16


def same_length(lengths_N: np.ndarray) -> tuple[int, int]:
  """Returns (N, L) of sequences that all have one length L.

  Raises:
    ValueError: the lengths differ.
  """
  length, = np.unique(lengths_N)
  return len(lengths_N), int(length)
