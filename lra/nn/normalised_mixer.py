"""Gated mixers that divide a token's output by the sum of its weights.

Values get one more column, of ones; its output is the sum of the weights.

Shapes: B batch, L length, H heads. N is the width of a head's queries and keys,
E that of its values.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lra.nn.gated_mixer import GatedMixer


class NormalisedMixer(GatedMixer):
  """A mixer that calls `attend` with values of width E + 1.

  Attributes: those of `GatedMixer`.
  """

  sums = 1

  def attend_and_sum(self, operands: Callable[[bool], tuple],
                     mask_BxL: jax.Array, scale: float = 1.0
                     ) -> list[jax.Array]:
    """Calls `attend` on values with a column of ones.

    Returns float32 [B, L, H, E + 1] per direction; the last column is the sum
    of the weights.
    """
    def with_ones(reverse):
      q, k, v, log_decay = operands(reverse)
      return q, k, ones_behind(v), log_decay

    return [o.astype(jnp.float32)
            for o in self.attend(with_ones, mask_BxL, scale)]


def ones_behind(v_BxLxHxE: jax.Array) -> jax.Array:
  """Appends a column of ones: [B, L, H, E + 1]."""
  return jnp.pad(v_BxLxHxE, [(0, 0)] * 3 + [(0, 1)], constant_values=1)
