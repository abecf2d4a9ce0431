"""Packs a yes or no for each of many examples into a short text."""

import base64

import numpy as np


def pack(flags) -> str:
  """Packs bool [N] into base64 of bytes; the first is the highest bit."""
  return base64.b64encode(np.packbits(
      np.asarray(flags, bool)).tobytes()).decode()


def unpack(text: str, count: int) -> np.ndarray:
  """Returns the bool [count] of a text that `pack` made.

  Raises:
    ValueError: the text does not hold `count` flags.
  """
  data = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
  flags = np.unpackbits(data).astype(bool)
  if len(data) != -(-count // 8) or flags[count:].any():
    raise ValueError(f'it does not hold {count} bits')
  return flags[:count]
