"""Lower bounds of decays for HGRN and HGRN2; they rise from layer to layer."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class LowerBounds(nn.Module):
  """The lower bounds of all layers: D -> float32 [number of layers, D].

    gamma_k = sum_(j < k) softmax(G)_j for layer k,  so gamma_0 = 0

  Source: Qin et al. 2023, arXiv 2311.04823, section 3.2.

  Attributes:
    num_layers: number of layers.
  """
  num_layers: int

  @nn.compact
  def __call__(self, width: int) -> jax.Array:
    """Returns gamma of all layers, float32 [num_layers, width]."""
    share_KxD = nn.softmax(self.param(
        'bounds', nn.initializers.ones, (self.num_layers, width)), axis=0)
    # XLA computes a wrong gradient of one row of `cumsum` on a CPU.
    return jnp.stack([share_KxD[:k].sum(0) for k in range(self.num_layers)])
