"""Options compiled into a linear-attention program."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class LinearOptions:
  feature_map: str = 'elu1'
  normalize: bool = True
  scale: float = 1.0
  eps: float = 1e-6
  return_state: bool = False
  interpret: Any = None


def check_value_width(shape, value_width):
  """Raises NotImplementedError if values are not as wide as features."""
  if value_width not in (None, shape[-1]):
    raise NotImplementedError(
        'the Pallas kernels need features as wide as the values, got '
        f"{shape[-1]} and {value_width}: use kernel='xla' or 'auto'")
