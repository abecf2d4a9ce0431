"""Damages files on purpose."""

import pathlib


def flip_a_bit(path: pathlib.Path, place: int) -> None:
  """Flips the lowest bit of the byte at `place`, which may be negative."""
  data = bytearray(path.read_bytes())
  data[place] ^= 1
  path.write_bytes(data)
