"""Gated linear units after a mixer, as in S4, S5 and LRU.

For the mixer's output y, dense layers W and V, and g = GELU(y):

  gelu: g
  half_glu1: g sigmoid(W g)
  half_glu2: y sigmoid(W g)
  full_glu: (V g) sigmoid(W g)

Source: Dauphin et al. 2017, arXiv 1612.08083; Smith et al. 2023,
arXiv 2208.04933, appendix G.1, and the released code
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.nn.contraction import Dense
from lra.nn.dropout import Dropout

ACTIVATIONS = ('gelu', 'half_glu1', 'half_glu2', 'full_glu')


class GatedOutput(nn.Module):
  """Applies GELU, dropout and a gate: [B, L, E] -> [B, L, D].

  Attributes:
    activation: one of `ACTIVATIONS`.
    dropout: dropout rate after GELU.
    dtype: computing dtype.
    exact: whether GELU is exact, as in S4; else its tanh approximation.
    width: D; 0 means E. Only `full_glu` allows another width than E.
    tie_dropout: `tied` of `lra.nn.dropout.Dropout`.
  """
  activation: str
  dropout: float
  dtype: jnp.dtype
  exact: bool = False
  width: int = 0
  tie_dropout: bool = False

  @nn.compact
  def __call__(self, y_BxLxE: jax.Array, *, train: bool) -> jax.Array:
    """Returns [B, L, D] in `dtype`; `train` turns dropout on."""
    g_BxLxE = nn.gelu(y_BxLxE, approximate=not self.exact).astype(self.dtype)
    g_BxLxE = Dropout(self.dropout, self.tie_dropout, name='drop')(
        g_BxLxE, deterministic=not train)
    if self.activation == 'gelu':
      return g_BxLxE
    dense = {'features': self.width or y_BxLxE.shape[-1], 'dtype': self.dtype}
    gate_BxLxD = nn.sigmoid(Dense(**dense, name='gate')(g_BxLxE))
    if self.activation == 'half_glu2':
      return y_BxLxE.astype(self.dtype) * gate_BxLxD
    if self.activation == 'full_glu':
      g_BxLxE = Dense(**dense, name='value')(g_BxLxE)
    return g_BxLxE * gate_BxLxD
