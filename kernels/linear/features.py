"""Feature maps of linear attention and SiLU, with derivatives, in float32."""

import math

import jax.numpy as jnp

NAMES = ('elu1', 'relu', 'identity')
_LOG2_E = math.log2(math.e)


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


def silu(x):
  x = x.astype(jnp.float32)
  return x * _sigmoid(x)


def silu_slope(x):
  """Returns silu'(x), in the order that needs the fewest registers."""
  x = x.astype(jnp.float32)
  part = _sigmoid(x)
  return part + part * (x - x * part)


def _sigmoid(x):
  return 1 / (1 + jnp.exp2(x * -_LOG2_E))
