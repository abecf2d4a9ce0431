"""Options compiled into a lightning-attention program, and its activation."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp

ACTIVATIONS = ('identity', 'silu')
_LOG2_E = math.log2(math.e)


@dataclasses.dataclass(frozen=True)
class LightningOptions:
  scale: float = 1.0
  activation: str = 'identity'
  return_state: bool = False
  interpret: Any = None


def silu(x):
  x = x.astype(jnp.float32)
  return x * _sigmoid(x)


def slope(x):
  """Returns silu'(x) = s (1 + x (1 - s)), with s = sigmoid(x).

  The terms are in the order that needs the fewest registers.
  """
  x = x.astype(jnp.float32)
  part = _sigmoid(x)
  return part + part * (x - x * part)


def _sigmoid(x):
  return 1 / (1 + jnp.exp2(x * -_LOG2_E))
