"""What is compiled into a lightning-attention program."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class LightningOptions:
  scale: float = 1.0
  return_state: bool = False
  interpret: Any = None
