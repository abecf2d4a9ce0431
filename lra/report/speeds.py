"""Reads the speeds that `python -m lra.costs --speed` has measured."""

import dataclasses
import math
import pathlib

from lra.errors import UserError
from lra.files import read_json


@dataclasses.dataclass(frozen=True)
class Speeds:
  """Training steps of one shape, timed side by side.

  Attributes:
    what: the sequences of a step, and its device.
    faster: model -> steps in the time of one step of the Transformer.
    memory: model -> bytes of a step besides its arguments.
  """
  what: str
  faster: dict[str, float]
  memory: dict[str, int]


def read(path: pathlib.Path) -> Speeds:
  """Returns the measurements of the last shape, with the longest sequences.

  Raises:
    UserError: the file is missing or not valid.
  """
  measured = read_json(path)
  try:
    batch, length = measured['shapes'][-1]
    models = measured['models']
    seconds = {name: float(m['seconds'][-1]) for name, m in models.items()}
    memory = {name: int(m['bytes'][-1]) for name, m in models.items()}
    what = f'{batch} x {length:,} tokens on {measured["device"]}'
    faster = {name: seconds['transformer'] / s for name, s in seconds.items()}
    if not all(0 < x < math.inf for x in (*faster.values(), *memory.values())):
      raise ValueError('times and bytes must be above 0')
  except (TypeError, ValueError, KeyError, IndexError, AttributeError,
          ArithmeticError) as e:
    raise UserError(
        f'{path} holds no speeds of models: restore it, or write it by '
        '`python -m lra.costs --speed`.') from e
  return Speeds(what, faster, memory)
