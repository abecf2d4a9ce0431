"""Rotary positions: queries and keys turned by angles that grow with position.

A dot product of turned vectors depends on positions through their distance
only. Su et al. 2021, arXiv 2104.09864, eq. 13-15, with channel i paired with
i + width / 2 instead of its neighbour: the same up to the order of channels,
without a stride.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lra.errors import UserError
from lra.nn.mixer import HeadMixer

BASE = 10_000.0


def angles(length: int, width: int, base: float = BASE) -> np.ndarray:
  """Angle of each position and pair, p * base^(-2 i / width), float64 [L, W/2].

  Raises:
    ValueError: the width is odd.
  """
  if width % 2:
    raise ValueError(f'{width} channels cannot be paired: choose an even width')
  rates = base ** (-np.arange(0, width, 2) / width)
  return np.arange(length)[:, None] * rates


def rotate(x_BxLxHxW: jax.Array, base: float = BASE) -> jax.Array:
  """The vectors of position p turned by the angles of p, in their dtype.

  Raises:
    ValueError: the width W is odd.
  """
  length, width = x_BxLxHxW.shape[1], x_BxLxHxW.shape[3]
  angle_1xLx1xP = angles(length, width, base)[None, :, None]
  cos, sin = (jnp.asarray(f(angle_1xLx1xP), jnp.float32) for f in (
      np.cos, np.sin))
  a, b = jnp.split(x_BxLxHxW.astype(jnp.float32), 2, axis=-1)
  turned = jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)
  return turned.astype(x_BxLxHxW.dtype)


class RotaryMixer(HeadMixer):
  """A `HeadMixer` whose queries and keys may be turned.

  A subclass that replaces `project` passes its result through `turn`.

  Attributes: those of `HeadMixer`, and
    rotary: whether they are turned, besides the positions of the embedding;
      `config.encoder.positions='none'` leaves those out.

  Raises:
    UserError: heads of odd width are to be turned.
  """
  rotary: bool = False

  def project(self, x_BxLxD: jax.Array
              ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """See `HeadMixer.project`."""
    return self.turn(*super().project(x_BxLxD))

  def turn(self, q_BxLxHxDh: jax.Array, k_BxLxGxDh: jax.Array,
           v_BxLxGxDh: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries and keys turned if `rotary`, and the values as they are."""
    if not self.rotary:
      return q_BxLxHxDh, k_BxLxGxDh, v_BxLxGxDh
    if q_BxLxHxDh.shape[-1] % 2:
      raise UserError(
          f'Heads {q_BxLxHxDh.shape[-1]} wide cannot be turned in pairs: '
          'choose config.model.qkv_width and num_heads for an even width.')
    return rotate(q_BxLxHxDh), rotate(k_BxLxGxDh), v_BxLxGxDh
