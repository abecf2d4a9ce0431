"""What is compiled into a SimpleTRON program."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class SimpletronOptions:
  scale: float
  interpret: Any = None
