"""Augments training inputs at random: each kind of task has its own change.

The settings are those of Miralles-Gonzalez et al. 2025, arXiv 2501.14850, and
of its released code (github.com/pablomiralles22/long-transformers). That code
also applies the AutoAugment policy of CIFAR-10 to Image. It changes colours and
our images are grey, so it is left out here.

All random numbers of an example depend on the seed, the step (from 0) and its
own index only. Ids are from 1 on; 0 is padding.
"""

import math
from typing import NamedTuple

import numpy as np

from lra.data_prep import trees

# The last number of each seed, which keeps the draws of an example apart.
_IMAGE, _TOKENS, _ARGUMENTS, _WINDOW = range(1, 5)
# Share of tokens that are corrupted, and of these the share of hidden ones.
CORRUPTED, HIDDEN = 0.3, 0.67


class Change(NamedTuple):
  """The range of random changes of one kind of images."""
  mirror: bool = False  # whether half of them are mirrored left to right
  upend: bool = False  # whether half of them are mirrored top to bottom
  degrees: float = 0.0  # largest rotation in either direction
  shift: float = 0.0  # largest shift in either direction, a share of the side
  scale: tuple[float, float] = (1.0, 1.0)  # lowest and highest factor


# Data set -> its changes.
CHANGES = {
    'image': Change(mirror=True, shift=0.1, scale=(0.9, 1.1)),
    # A mirrored digit is no digit, or another one.
    'mnist': Change(degrees=10.0, shift=0.1, scale=(0.9, 1.1)),
    'pathfinder': Change(mirror=True, upend=True, degrees=10.0, shift=0.1,
                         scale=(0.9, 0.9))}


def draw(indices, seed: int, step: int) -> np.ndarray:
  """Returns uniform numbers for `images`, float64 [B, 6]."""
  return np.stack([
      rng.random(6) for rng in _generators(indices, seed, step, _IMAGE)])


def images(ids_BxL: np.ndarray, change: Change, drawn_Bx6: np.ndarray,
           black: int) -> np.ndarray:
  """Returns square images after random changes, in the dtype of the ids.

  Images are mirrored first. Then they are turned and scaled around their
  centre, and shifted by whole pixels. Each new pixel is the nearest old one.

  Args:
    ids_BxL: pixels, row by row.
    change: the ranges.
    drawn_Bx6: the result of `draw`. Its columns decide on mirroring, upending,
      rotation, the shifts to the right and down, and scale.
    black: id of pixels from outside of the image.
  """
  side = math.isqrt(ids_BxL.shape[1])
  mirror, upend, turn, right, down, scale = drawn_Bx6.T[..., None, None]
  angle = np.deg2rad(change.degrees) * (2 * turn - 1)
  reach = change.shift * side
  low, high = change.scale
  factor = low + (high - low) * scale
  # The centres of the pixels of the result, relative to that of the image.
  middle = np.arange(side) + 0.5 - side / 2
  x_Bx1xS = middle - np.round(reach * (2 * right - 1))
  y_BxSx1 = middle[:, None] - np.round(reach * (2 * down - 1))
  # Where each of them comes from.
  x_BxSxS = (np.cos(angle) * x_Bx1xS + np.sin(angle) * y_BxSx1) / factor
  y_BxSxS = (np.cos(angle) * y_BxSx1 - np.sin(angle) * x_Bx1xS) / factor
  if change.mirror:
    x_BxSxS = np.where(mirror < 0.5, -x_BxSxS, x_BxSxS)
  if change.upend:
    y_BxSxS = np.where(upend < 0.5, -y_BxSxS, y_BxSxS)
  column, row = (np.floor(a + side / 2).astype(np.int64)
                 for a in (x_BxSxS, y_BxSxS))
  inside = (np.minimum(column, row) >= 0) & (np.maximum(column, row) < side)
  at_BxL = np.where(inside, row * side + column, 0).reshape(ids_BxL.shape)
  return np.where(inside.reshape(ids_BxL.shape),
                  np.take_along_axis(ids_BxL, at_BxL, axis=1),
                  ids_BxL.dtype.type(black))


def shuffled(ids_BxL: np.ndarray, indices, seed: int, step: int
             ) -> np.ndarray:
  """Returns ListOps expressions after a shuffle of each operator's arguments.

  The value stays, since all four operators are symmetric. An expression that is
  not whole stays as it is. Ids are codes of `lra.data_prep.trees.TOKENS` plus
  1; `indices` [B] are those of the examples.
  """
  made = ids_BxL.copy()
  rngs = _generators(indices, seed, step, _ARGUMENTS)
  for row, length, rng in zip(
      made, np.count_nonzero(ids_BxL, axis=1), rngs, strict=True):
    row[:length] = _shuffled(row[:length].tolist(), rng.random(length).tolist())
  return made


def _shuffled(ids: list[int], ranks: list[float]) -> list[int]:
  """Returns an expression with the arguments in the order of their ranks.

  The rank of an argument is that of its first token.
  """
  # For each open operator, outermost first: its rank and id, and the (rank,
  # tokens) of the arguments so far.
  open_: list[tuple[float, int, list]] = [(0.0, 0, [])]
  for rank, i in zip(ranks, ids, strict=True):
    if trees.MIN < i <= trees.CLOSE:
      open_.append((rank, i, []))
      continue
    if i <= trees.CLOSE:
      open_[-1][2].append((rank, [i]))
      continue
    rank, operator, arguments = open_.pop()
    if not open_:
      return ids
    arguments.sort()
    open_[-1][2].append((rank, [
        operator, *(t for _, tokens in arguments for t in tokens), i]))
  if len(open_) > 1:
    return ids
  return [t for _, tokens in open_[0][2] for t in tokens]


def places(indices, documents: int, seed: int, step: int) -> np.ndarray:
  """Returns where the window of each document begins, float64 [B].

  The numbers are uniform from 0, the first possible place, to 1, the last one.
  For examples with 2 `documents` they are [B, 2].
  """
  drawn = np.stack([rng.random(documents) for rng in _generators(
      indices, seed, step, _WINDOW)])
  return drawn if documents > 1 else drawn[:, 0]


def corrupted(ids_BxL: np.ndarray, vocab_size: int, indices, seed: int,
              step: int) -> np.ndarray:
  """Returns ids of which a share is hidden (-1) or random; padding stays.

  Pairs are [B, 2, L]. `vocab_size` is the number of ids, padding included.
  """
  shape, made = ids_BxL.shape[1:], []
  for rng in _generators(indices, seed, step, _TOKENS):
    score, other = rng.random(shape), rng.integers(1, vocab_size, shape)
    made.append(np.where(score < CORRUPTED * HIDDEN, -1, other)
                * (score < CORRUPTED))
  new_BxL = np.stack(made).astype(ids_BxL.dtype)
  return np.where((new_BxL != 0) & (ids_BxL > 0), new_BxL, ids_BxL)


def _generators(indices, seed, step, stream):
  return [np.random.default_rng([seed, 1 + step, int(i), stream])
          for i in indices]
