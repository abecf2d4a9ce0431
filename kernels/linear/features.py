"""Options of a linear-attention program, and its feature maps in float32."""

import dataclasses
from typing import Any

import jax.numpy as jnp

NAMES = ('elu1', 'relu', 'identity')


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


def apply(name, x):
  """Returns phi(x) in float32; elu1 is elu(x) + 1 (arXiv 2006.16236, eq. 7)."""
  x = x.astype(jnp.float32)
  if name == 'elu1':
    return jnp.where(x > 0, x + 1.0, jnp.exp(jnp.minimum(x, 0.0)))
  if name == 'relu':
    return jnp.maximum(x, 0.0)
  return x


def slope(name, x):
  """Returns phi'(x) in float32, 0 at the kink of relu."""
  x = x.astype(jnp.float32)
  if name == 'elu1':
    return jnp.where(x > 0, 1.0, jnp.exp(jnp.minimum(x, 0.0)))
  if name == 'relu':
    return (x > 0).astype(jnp.float32)
  return jnp.ones_like(x)


def slope_from(name, phi):
  """Returns phi'(x) from phi(x), both float32, without an exponential."""
  if name == 'elu1':  # e^x for x < 0, and x + 1 > 1 for x > 0
    return jnp.minimum(phi, 1.0)
  if name == 'relu':
    return (phi > 0).astype(jnp.float32)
  return jnp.ones_like(phi)
