"""Options compiled into a lightning-attention program."""

import dataclasses
from typing import Any

ACTIVATIONS = ('identity', 'silu')


@dataclasses.dataclass(frozen=True)
class LightningOptions:
  scale: float = 1.0
  activation: str = 'identity'
  return_state: bool = False
  interpret: Any = None
