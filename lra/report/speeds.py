"""What `python -m lra.costs --speed` has measured, as figures need it."""

import dataclasses
import math
import pathlib

from lra.errors import UserError
from lra.files import read_json


@dataclasses.dataclass(frozen=True)
class Speeds:
  """Training steps of one shape, timed side by side.

  Attributes:
    what: the sequences of a step, and what it ran on.
    faster: model -> steps in the time of one of the Transformer.
    memory: model -> bytes that a step needs beside its arguments.
  """
  what: str
  faster: dict[str, float]
  memory: dict[str, int]


def read(path: pathlib.Path) -> Speeds:
  """The last shape of what was measured: the longest sequences.

  Raises:
    UserError: the file is not there or is not sound.
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
