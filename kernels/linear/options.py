"""What is compiled into a linear-attention program."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class LinearOptions:
  feature_map: str = 'elu1'
  normalize: bool = True
  scale: float = 1.0
  eps: float = 1e-6
  interpret: Any = None
