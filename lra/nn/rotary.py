"""Rotary positions: rotates queries and keys by angles that grow with position.

The dot product of two rotated vectors depends on their distance, not on their
positions. Su et al. 2021, arXiv 2104.09864, eq. 13-15. Here channel i is paired
with i + width / 2, which needs no strided access. The source pairs neighbours,
which is equal up to the order of channels.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lra.core.errors import UserError
from lra.nn.mixer import HeadMixer
from lra.schema import fields

BASE = 10_000.0


def angles(length: int, width: int, base: float = BASE) -> np.ndarray:
  """Returns p base^(-2 i / width) for position p, pair i: float64 [L, W/2]."""
  if width % 2:
    raise ValueError(f'{width} channels cannot be paired: choose an even width')
  rates = base ** (-np.arange(0, width, 2) / width)
  return np.arange(length)[:, None] * rates


def rotate(x_BxLxHxW, base: float = BASE) -> jax.Array:
  """Rotates the vectors of position p by the angles of p, in their dtype."""
  length, width = x_BxLxHxW.shape[1], x_BxLxHxW.shape[3]
  return rotate_by(x_BxLxHxW, angles(length, width, base)[:, None])


def rotate_by(x_BxLxHxW, angle_LxHxP: np.ndarray) -> jax.Array:
  """Rotates channels i and i + W / 2 by an angle in radians; H may be 1."""
  cos, sin = (jnp.asarray(f(angle_LxHxP)[None], jnp.float32) for f in (
      np.cos, np.sin))
  a, b = jnp.split(x_BxLxHxW.astype(jnp.float32), 2, axis=-1)
  turned = jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)
  return turned.astype(x_BxLxHxW.dtype)


class RotaryMixer(HeadMixer):
  """A `HeadMixer` that can rotate queries and keys, in heads of even width.

  A subclass that overrides `project` passes its result through `turn`.
  """
  rotary: bool = fields.argument(
      False, 'Whether to rotate queries and keys. This adds to the positions '
      "of the embedding; `config.encoder.positions='none'` removes those.")

  @property
  def traits(self):
    return super().traits.but(ordered=self.rotary)

  def project(self, x_BxLxD):
    return self.turn(*super().project(x_BxLxD))

  def turn(self, q_BxLxHxDh, k_BxLxGxDh, v_BxLxGxDh):
    """Rotates queries and keys if `rotary`; returns the values unchanged."""
    if not self.rotary:
      return q_BxLxHxDh, k_BxLxGxDh, v_BxLxGxDh
    if q_BxLxHxDh.shape[-1] % 2:
      raise UserError(
          f'Heads of width {q_BxLxHxDh.shape[-1]} cannot be rotated in pairs: '
          'choose config.model.qkv_width and num_heads for an even width.')
    return rotate(q_BxLxHxDh), rotate(k_BxLxGxDh), v_BxLxGxDh
