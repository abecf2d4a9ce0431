"""Describes generated data: how sequences are drawn, and how many."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from lra.core.errors import UserError

TRAINED, CHOSEN, SCORED = 128_000, 1000, 2000


@dataclasses.dataclass(frozen=True)
class Part:
  """Sequences of one length, or of lengths drawn uniformly from a range."""
  count: int
  length: int  # or the longest one
  shortest: int | None = None  # by default all have `length`
  # Arguments of `Variant.draw` that differ from `Variant.sizes`.
  sizes: Mapping = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Variant:
  """A probe and its size.

  Attributes:
    draw: (rng, lengths int64 [N], **sizes) -> tokens and answers. Both are
      integers [N, max(lengths)]; entries beyond a sequence's length are
      ignored. Answer 0 marks a token without a question, c + 1 is class c.
    sizes: other arguments of `draw`. `symbols` or `vocab` are the number of
      codes and classes, at most 255 by default.
    train, val, test: the parts of each split.
    last: whether val, test and longer tests have one question, at the last
      token. Training has all questions, since early ones are easy to learn.
    longer: (length) -> changes of `sizes` in a test of that length.
    step, least: lengths are multiples of `step`, and at least `least`.
    tests: name -> another test of a given size, such as a published one.
    rules: name of a baseline -> its function and description; see `baselines`.
    alphabet: the symbol of each token code, to show a sequence; '' for numbers.
  """
  draw: Callable
  sizes: Mapping
  train: tuple[Part, ...]
  val: tuple[Part, ...]
  test: tuple[Part, ...]
  last: bool = False
  longer: Callable[[int], Mapping] = lambda length: {}
  step: int = 1
  least: int = 1
  tests: Mapping[str, Part] = dataclasses.field(default_factory=dict)
  rules: Mapping[str, tuple[Callable, str]] = dataclasses.field(
      default_factory=dict)
  alphabet: str = ''

  def lengths(self, rng, part: Part) -> np.ndarray:
    """Draws possible lengths of a part, int64 [N]; UserError if none is."""
    shortest = max(part.shortest or part.length - self.step + 1, self.least)
    first, last = -(-shortest // self.step), part.length // self.step
    if first > last:
      raise UserError(
          f'No sequence has {part.shortest or part.length} to {part.length} '
          f'tokens: choose a length of at least {self.least}'
          f'{f", a multiple of {self.step}" if self.step > 1 else ""}.')
    if first == last:
      return np.full(part.count, first * self.step)
    return self.step * rng.integers(first, last + 1, part.count)

  @property
  def dtype(self) -> type:
    """Type of the stored codes and answers."""
    symbols = self.sizes.get('symbols', self.sizes.get('vocab', 0))
    return np.uint8 if symbols < 256 else np.uint16


def of_length(draw: Callable, length: int, shortest: int | None = None,
              sizes: Mapping | None = None, **settings) -> Variant:
  """Returns a variant whose splits have sequences of the same lengths."""
  return Variant(draw, sizes or {}, *(
      (Part(count, length, shortest),) for count in (TRAINED, CHOSEN, SCORED)),
                 **settings)


def same_length(lengths_N: np.ndarray) -> tuple[int, int]:
  """Returns (N, L) if all lengths are equal."""
  length, = np.unique(lengths_N)
  return len(lengths_N), int(length)


def at_last(lengths_N: np.ndarray, classes_N: np.ndarray) -> np.ndarray:
  """Returns answers with one question, at the last token, uint8 [N, L]."""
  answers = np.zeros((len(lengths_N), lengths_N.max()), np.uint8)
  answers[np.arange(len(lengths_N)), lengths_N - 1] = classes_N + 1
  return answers
