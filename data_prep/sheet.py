"""A picture of some examples of an image task."""

import pathlib

import numpy as np
from PIL import Image, ImageDraw

from data_prep.pixels import images_of
from lra.errors import UserError

_ROWS, _COLUMNS = 4, 8
_LEAST = 96  # pixels of the side of an image, at least
_CAPTION = 14


def write(split, path: pathlib.Path) -> None:
  """Writes the first images of a split as a PNG, with their labels.

  Raises:
    UserError: the file cannot be written.
  """
  images = images_of(split, 0, _ROWS * _COLUMNS)
  by = max(1, -(-_LEAST // images.shape[1]))
  side = images.shape[1] * by
  sheet = Image.new('L', (_COLUMNS * (side + 4) + 4,
                          _ROWS * (side + _CAPTION + 4) + 4), 255)
  draw = ImageDraw.Draw(sheet)
  for i, image in enumerate(images):
    row, column = divmod(i, _COLUMNS)
    x, y = 4 + column * (side + 4), 4 + row * (side + _CAPTION + 4)
    draw.text((x, y), f'label {split.labels[i]}', fill=0)
    large = np.kron(image, np.ones((by, by), np.uint8))
    sheet.paste(Image.fromarray(large), (x, y + _CAPTION))
  try:
    sheet.save(path, 'PNG')
  except OSError as e:
    raise UserError(f'Cannot write {path} ({e.strerror}): choose another '
                    'directory with --data_dir.') from e
