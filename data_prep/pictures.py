"""Converts pictures to arrays of 8 bits a colour, if that loses nothing."""

import re

import numpy as np
from PIL import Image

# Pillow's names of raw modes with 16 bits a colour, in any byte order. 'BGR;16'
# has 16 bits a pixel: 5 or 6 bits a colour.
_DEEP = re.compile(r'[A-Za-z]+;16[BLN]')


def pixels(image: Image.Image, mode: str) -> np.ndarray:
  """Returns pixels, uint8: [H, W] for `mode` 'L' (grey), [H, W, 3] for 'RGB'.

  Palettes, transparency and single bits are converted.

  Raises:
    ValueError: there are more than 8 bits a colour, or several pictures. Pillow
      would cut the bits and take the first picture.
  """
  if image.mode.startswith(('I', 'F')) or _is_cut(image):
    raise ValueError('it has more than 8 bits a colour')
  count = getattr(image, 'n_frames', 1)
  if count > 1:
    raise ValueError(f'it has {count} pictures instead of one')
  return np.asarray(image.convert(mode))


def _is_cut(image):
  """Returns whether the file has more bits a colour than `image.mode` shows."""
  for tile in getattr(image, 'tile', ()):
    arguments = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
    form = arguments[0] if arguments else None
    if isinstance(form, str) and _DEEP.fullmatch(form):
      return True
    if tile[0] in ('ppm', 'ppm_plain') and arguments[1] > 255:
      return True
  return False
