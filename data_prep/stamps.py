"""The stamps that Pathfinder images are made of: paddles and markers.

A paddle is a short line. Its stamp is an image of it, drawn larger and shrunk,
with the paddle's tail at the centre. Its mask also covers the pixels too near
to the line. Coordinates are (y, x); an orientation phi points to (sin phi, cos
phi).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage


@dataclasses.dataclass(frozen=True)
class Law:
  """The parameters of a Pathfinder set; lengths are in pixels."""
  side: int
  padding: int  # width of the border without paddles
  antialias: int  # factor by which lines are drawn larger, then shrunk
  margins: tuple[int, ...]  # distances between paddles; an image has one
  seed_distance: int  # from one target snake's first paddle to the other's
  marker_radius: float
  contour_length: int  # paddles of a target snake
  paddle_length: int
  paddle_thickness: float
  continuity: float  # larger is straighter
  distractor_length: int  # paddles of a distractor
  distractors: int  # number that is tried; some find no room
  snake_contrast: float  # grey of distractors, before the image is rescaled
  paddle_contrast: float = 1.0  # additional factor of the targets' grey
  paddle_retries: int = 2
  distractor_retries: int = 4


# Laws of Long Range Arena's Pathfinder (arXiv 2011.04006), with 14 paddles to a
# target: its hard set, the only one that the arena scores.
LAWS = {
    32: Law(32, 1, 2, (1,), 7, 1.5, 14, 2, 0.5, 1.0, 4, 5, 2.0, 0.75),
    64: Law(64, 1, 2, (1,), 12, 2.5, 14, 5, 1, 1.8, 4, 5, 0.8),
    128: Law(128, 1, 2, (2, 3), 20, 3, 14, 5, 1.5, 1.8, 4, 8, 0.9),
    256: Law(256, 22, 2, (3,), 27, 5, 14, 5, 2, 1.8, 4, 7, 1.0),
}


class Stamps(NamedTuple):
  """The stamps of a law and one of its margins."""
  phi: np.ndarray  # float64 [N], orientations
  lines: np.ndarray  # float32 [N, S, S], 0 to 1, the tail in the middle
  masks: np.ndarray  # like `lines`
  usable: np.ndarray  # bool [N], whether a first paddle may have this `phi`
  near: np.ndarray  # int64 [N, K, 2], places that a first paddle needs free
  counts: np.ndarray  # int64 [N], number of valid rows of `near`


@functools.cache
def first(law: Law, margin: int) -> Stamps:
  """Returns the stamps of first paddles: one for each whole degree."""
  return _stamps(law, margin, np.radians(np.arange(-180, 180)))


@functools.cache
def ring(law: Law, margin: int) -> tuple[np.ndarray, np.ndarray, Stamps]:
  """Returns the possible far ends of the next paddle, and its stamps.

  Returns:
    Offsets of the far end from the pivot, int64 [N, 2]; directions from pivot
    to far end, float64 [N]; the stamps, whose lines lead from the far end back.
  """
  radius = law.paddle_length + margin
  count = math.ceil(2 * math.pi * radius)
  angles = np.arange(count) / radius
  points = np.stack([np.sin(angles), np.cos(angles)], 1) * radius
  # Integer offsets, so they fit any pivot.
  points = np.unique(np.floor(points).astype(np.int64), axis=0)
  phi = np.arctan2(points[:, 0], points[:, 1])
  return points, phi, _stamps(law, margin, phi + math.pi)


@functools.cache
def marker(law: Law) -> np.ndarray:
  """Returns a disc, float32 [S, S], 0 to 1, its centre in the middle."""
  aa, half = law.antialias, math.ceil(law.marker_radius) + 2
  y, x = np.mgrid[:(2 * half + 1) * aa, :(2 * half + 1) * aa] - half * aa
  inside = y ** 2 + x ** 2 <= (law.marker_radius * aa) ** 2
  return _resized(inside * np.uint8(255), 2 * half + 1)


def disc(radius: int) -> np.ndarray:
  """Returns bool [2 R + 1, 2 R + 1], True within `radius` of the middle."""
  y, x = np.mgrid[-radius:radius + 1, -radius:radius + 1]
  return y ** 2 + x ** 2 <= radius ** 2


def _stamps(law, margin, phi):
  lines, masks = (np.stack(part) for part in zip(
      *(_paddle(law, margin, p) for p in phi), strict=True))
  near = [_near(law, margin, mask) for mask in masks]
  table = np.zeros((len(phi), max(map(len, near)), 2), np.int64)
  for i, offsets in enumerate(near):
    table[i, :len(offsets)] = offsets
  # A first paddle needs an offset in each of the four quadrants.
  usable = [all((n * side >= 0).all(1).any() for side in (
      (1, 1), (1, -1), (-1, 1), (-1, -1))) for n in near]
  return Stamps(phi, lines, masks, np.array(usable), table,
                np.array([len(n) for n in near]))


def _paddle(law, margin, phi):
  aa = law.antialias
  half = law.paddle_length + math.ceil(law.paddle_thickness) + margin
  side, middle = 2 * half * aa + 1, half * aa
  y = math.ceil(middle + law.paddle_length * aa * math.sin(phi))
  x = math.ceil(middle + law.paddle_length * aa * math.cos(phi))
  canvas = Image.new('L', (side, side))
  ImageDraw.Draw(canvas).line(
      (middle, middle, x, y), fill=255, width=round(law.paddle_thickness * aa))
  line = np.asarray(canvas)
  mask = ndimage.grey_dilation(line, footprint=disc(margin * aa))
  return _resized(line, 2 * half + 1), _resized(mask, 2 * half + 1)


def _resized(image, side):
  small = Image.fromarray(image).resize((side, side), Image.Resampling.LANCZOS)
  return np.asarray(small, np.float32) / 255


def _near(law, margin, mask):
  """Returns offsets from the tail that a mask fills wholly, int [K, 2].

  They lie in a window that is one pixel off the tail in y and in x. This looks
  like a mistake of the program that made the arena's images. But it decides
  which orientations a first paddle may have: 30 of 360 at 32 x 32.
  """
  reach = law.paddle_length + margin
  offsets = np.argwhere(mask == 1) - len(mask) // 2 + 1
  return offsets[(abs(offsets) <= reach).all(1)]
