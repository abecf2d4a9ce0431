"""A yes or no for each of many examples, as a short text."""

import base64

import numpy as np


def pack(flags) -> str:
  """Text of bool [N]: base64 of their bits, the first in the highest place."""
  return base64.b64encode(np.packbits(np.asarray(flags, bool))).decode()


def unpack(text: str, count: int) -> np.ndarray:
  """bool [count] of a text that `pack` made.

  Raises:
    ValueError: it is not the text of so many.
  """
  data = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
  flags = np.unpackbits(data).astype(bool)
  if len(data) != -(-count // 8) or flags[count:].any():
    raise ValueError(f'it does not hold {count} bits')
  return flags[:count]
