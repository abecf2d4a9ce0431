"""Softmax attention under fixed sparse patterns: a model is its `patterns`."""

import jax

from lra.nn import block_sparse
from lra.nn.mixer import HeadMixer
from lra.nn.patterns import Pattern


class PatternMixer(HeadMixer):
  """Heads dealt out evenly to patterns: x [B, L, D], mask [B, L] -> [B, L, D].

  A subclass writes `patterns`. Attributes and errors are those of `HeadMixer`.
  """

  def patterns(self, length: int) -> tuple[Pattern, ...]:
    """The patterns of equal groups of heads, in order, for L = `length`."""
    raise NotImplementedError

  def mix(self, q_BxLxHxDh: jax.Array, k_BxLxHxDh: jax.Array,
          v_BxLxHxDh: jax.Array, mask_BxL: jax.Array, *,
          train: bool) -> jax.Array:
    """See `HeadMixer.mix`."""
    qkv = block_sparse.Heads(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh)
    return block_sparse.attend_in_groups(
        qkv, mask_BxL, self.patterns(q_BxLxHxDh.shape[1]))
