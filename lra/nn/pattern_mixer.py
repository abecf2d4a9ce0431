"""Softmax attention under fixed sparse patterns; a model gives `patterns`."""

import jax

from lra.nn import block_sparse
from lra.nn.mixer import HeadMixer
from lra.nn.patterns import Pattern


class PatternMixer(HeadMixer):
  """Splits heads over patterns: x [B, L, D], mask [B, L] -> [B, L, D].

  A subclass defines `patterns`. Attributes and errors are those of `HeadMixer`.
  """

  def patterns(self, length: int) -> tuple[Pattern, ...]:
    """Returns one pattern per equal group of heads, in order, for `length`."""
    raise NotImplementedError

  def mix(self, q_BxLxHxDh: jax.Array, k_BxLxHxDh: jax.Array,
          v_BxLxHxDh: jax.Array, mask_BxL: jax.Array, *,
          train: bool) -> jax.Array:
    qkv = block_sparse.Heads(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh)
    return block_sparse.attend_in_groups(
        qkv, mask_BxL, self.patterns(q_BxLxHxDh.shape[1]))
