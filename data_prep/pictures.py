"""Pictures as arrays of 8 bits a colour, or the reason why that loses some."""

import re

import numpy as np
from PIL import Image

# How Pillow names what it reads a file as: 16 bits a colour, in some order of
# their bytes. 'BGR;16' is 16 bits a pixel, of 5 and 6 bits a colour.
_DEEP = re.compile(r'[A-Za-z]+;16[BLN]')


def pixels(image: Image.Image, mode: str) -> np.ndarray:
  """The pixels of a picture, uint8.

  Palettes, transparency and single bits are ways to store a picture, and are
  converted. Pillow would cut 16 bits and floats to 8 bits, and would take the
  first of several pictures; these are refused.

  Args:
    image: as Pillow has opened it; nothing need be decoded yet.
    mode: 'L' for grey, [H, W], or 'RGB' for colours, [H, W, 3].

  Raises:
    ValueError: there are more than 8 bits a colour, or several pictures.
  """
  if image.mode.startswith(('I', 'F')) or _is_cut(image):
    raise ValueError('it has more than 8 bits a colour')
  count = getattr(image, 'n_frames', 1)
  if count > 1:
    raise ValueError(f'it has {count} pictures instead of one')
  return np.asarray(image.convert(mode))


def _is_cut(image):
  """Whether decoding the file drops bits that its mode does not show."""
  for tile in getattr(image, 'tile', ()):
    arguments = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
    form = arguments[0] if arguments else None
    if isinstance(form, str) and _DEEP.fullmatch(form):
      return True
    if tile[0] in ('ppm', 'ppm_plain') and arguments[1] > 255:
      return True
  return False
