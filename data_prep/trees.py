"""ListOps expressions: generates random ones, thousands at a time; reads one.

The process is that of Tay et al. 2021 (Long Range Arena, arXiv 2011.04006,
section 2.2.1), after Nangia and Bowman 2018 (arXiv 1804.06028). A node above
`max_depth` is an operator with probability 1/4, else a digit. An operator has 2
to `max_args` arguments. Expressions of a length outside the open interval
(`min_length`, `max_length`) are thrown away.

All trees of a chunk grow together, one depth at a time, so that numpy does
the work. The children of one depth lie side by side in the next depth's
arrays, in order. So every step below is a segmented sum.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

DIGITS = 10
MIN, MAX, MED, SM, CLOSE = range(10, 15)
TOKENS = tuple('0123456789') + ('[MIN', '[MAX', '[MED', '[SM', ']')


def fold(tokens: Iterable[int], digits: Sequence, apply: Callable):
  """Computes the value of an expression from the inside to the outside.

  `digits` holds the value of each digit, `apply` maps an operator, the values
  of its arguments and its depth, from 1, to its value.

  Raises:
    ValueError: `tokens` is not one complete expression.
  """
  waiting, arguments = [], []
  for token in tokens:
    if token < DIGITS:
      arguments.append(digits[token])
    elif token < CLOSE:
      waiting.append((token, arguments))
      arguments = []
    elif waiting and arguments:
      operator, before = waiting[-1]
      before.append(apply(operator, arguments, len(waiting)))
      arguments = waiting.pop()[1]
    else:
      raise ValueError('an operator without arguments or a stray bracket')
  if waiting or len(arguments) != 1:
    raise ValueError('not one complete expression')
  return arguments[0]


@dataclasses.dataclass(frozen=True)
class Process:
  """The parameters of the random process; lengths are in tokens."""
  max_depth: int = 10
  max_args: int = 10
  min_length: int = 500
  max_length: int = 2000


@dataclasses.dataclass
class Trees:
  """Kept expressions in the order of their draws."""
  tokens: np.ndarray  # uint8, those of all expressions
  offsets: np.ndarray  # int64 [N + 1], the first token of each
  values: np.ndarray  # int32 [N]
  draws: int  # number of generated expressions, kept or not

  def documents(self) -> list[bytes]:
    blob = self.tokens.tobytes()
    return [blob[start:stop] for start, stop in
            itertools.pairwise(self.offsets.tolist())]


@dataclasses.dataclass
class _Level:
  tree: np.ndarray
  symbol: np.ndarray
  arity: np.ndarray


def draw(process: Process, seed, draws: int) -> Trees:
  """Draws `draws` expressions and keeps those whose length `process` allows.

  The result depends on the arguments only: PCG64's raw stream is the same in
  every numpy version and on every machine. `seed` is an int or a sequence of
  ints.
  """
  levels, length = _grow(process, np.random.PCG64(seed), draws)
  keep = (length > process.min_length) & (length < process.max_length)
  kept = [keep[level.tree] for level in levels]
  levels = [_Level(level.tree[k], level.symbol[k], level.arity[k])
            for level, k in zip(levels, kept, strict=True) if k.any()]
  if not levels:
    empty = np.zeros(0, np.uint8)
    return Trees(empty, np.zeros(1, np.int64), np.zeros(0, np.int32), draws)
  sizes, values = _fold(levels)
  offsets = np.concatenate([[0], np.cumsum(sizes[0])])
  return Trees(_flatten(levels, sizes, offsets), offsets,
               values[0].astype(np.int32), draws)


def _grow(process, bits, draws):
  """Returns the levels, root first, and each tree's least possible length."""
  tree = np.arange(draws, dtype=np.int32)
  length = np.ones(draws, np.int64)
  levels = []
  for depth in range(1, process.max_depth + 1):
    level = _draw_level(process, bits, tree, depth == process.max_depth)
    levels.append(level)
    # A node was counted as one token; an operator is two and its arguments.
    extra = np.where(level.arity > 0, level.arity + 1, 0)
    length += np.bincount(tree, extra, minlength=draws).astype(np.int64)
    arity = np.where(length[tree] < process.max_length, level.arity, 0)
    tree = np.repeat(tree, arity)
    if not tree.size:
      break
  return levels, length


def _draw_level(process, bits, tree, leaves):
  raw = bits.random_raw(tree.size)
  low = raw & np.uint64(0xFFFFFFFF)
  digit = (low * np.uint64(DIGITS)) >> np.uint64(32)
  if leaves:
    return _Level(tree, digit.astype(np.uint8), np.zeros(tree.size, np.int64))
  is_operator = (raw >> np.uint64(62)) == 0
  operator = ((raw >> np.uint64(60)) & np.uint64(3)) + np.uint64(MIN)
  choices = np.uint64(process.max_args - 1)
  arity = ((low * choices) >> np.uint64(32)).astype(np.int64) + 2
  symbol = np.where(is_operator, operator, digit).astype(np.uint8)
  return _Level(tree, symbol, np.where(is_operator, arity, 0))


def _fold(levels):
  """Returns each node's length and value, level by level, from the leaves."""
  sizes, values = [], []
  child_size = child_value = None
  for level in reversed(levels):
    size = np.ones(level.tree.size, np.int64)
    value = level.symbol.astype(np.int64)
    parents = np.flatnonzero(level.arity)
    if parents.size:
      arity = level.arity[parents]
      starts = np.cumsum(arity) - arity
      size[parents] = 2 + np.add.reduceat(child_size, starts)
      value[parents] = _apply(
          level.symbol[parents], child_value, starts, arity)
    sizes.append(size)
    values.append(value)
    child_size, child_value = size, value
  return sizes[::-1], values[::-1]


def _apply(operator, argument, starts, arity):
  """Applies each operator to its arguments, a segment from `starts` on."""
  segment = np.repeat(np.arange(starts.size), arity)
  ordered = np.sort(segment * DIGITS + argument) % DIGITS
  lower = ordered[starts + (arity - 1) // 2]
  upper = ordered[starts + arity // 2]
  return np.select(
      [operator == MIN, operator == MAX, operator == MED],
      [ordered[starts], ordered[starts + arity - 1], (lower + upper) // 2],
      np.add.reduceat(argument, starts) % DIGITS)


def _flatten(levels, sizes, offsets):
  tokens = np.empty(offsets[-1], np.uint8)
  position = offsets[:-1]
  for depth, level in enumerate(levels):
    tokens[position] = level.symbol
    parents = np.flatnonzero(level.arity)
    if not parents.size:
      break
    tokens[position[parents] + sizes[depth][parents] - 1] = CLOSE
    arity = level.arity[parents]
    before = np.cumsum(sizes[depth + 1]) - sizes[depth + 1]
    first = position[parents] + 1 - before[np.cumsum(arity) - arity]
    position = before + np.repeat(first, arity)
  return tokens
