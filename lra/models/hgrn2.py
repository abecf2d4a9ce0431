"""HGRN2: a gated recurrence whose state is an outer product of key and value.

The gate f is the decay, and 1 - f is the key. Its lower bound l rises with the
layers, as in HGRN. The paper's expansion ratio is the width of a head. A
bidirectional layer sums both directions with the same parameters, as in the
authors' code, whose models for Image and Pathfinder scan rows and columns; this
one scans the sequence.

Equation: S_t = diag(f_t) S_(t-1) + (1 - f_t)^T SiLU(W_i x_t),
  f_t = l + (1 - l) sigmoid(W_f x_t), o_t = sigmoid(W_q x_t) S_t,
  y_t = W_o LayerNorm(o_t)
Source: Qin et al. 2024, arXiv 2404.07904, section 3, and the released code
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import About
from lra.models.hgrn import LowerBounds
from lra.nn import layers, norm
from lra.nn.matrix_state import GatedMixer
from lra.schema import fields

ABOUT = About('state space', 'O(L D^2 / H)', kernels=('xla',))


class Mixer(GatedMixer):
  lower_bound: bool = fields.argument(
      True, 'Whether the decays have a lower bound, in all layers but the '
      'first.')
  released: bool = fields.argument(
      True, 'Whether 1e-5 is added to the variance in the norm, as in the '
      'released code. Older records have 1e-6 (False).')
  layer: int = 0
  num_layers: int = 1

  per_channel = True

  @property
  def traits(self):
    return super().traits.but(shared=LowerBounds if self.lower_bound else None)

  def mix(self, x_BxLxD, mask_BxL, shared: jax.Array | None = None):
    """Returns [B, L, D]; `shared` are `LowerBounds`, None for the mixer's own.
    """
    width = x_BxLxD.shape[-1]
    if shared is None and self.lower_bound:
      shared = LowerBounds(self.num_layers, name='lower')(width)
    N, _ = self.heads(width)
    q_BxLxHxN, forget_BxLxHxN, v_BxLxHxN = (
        self.project(x_BxLxD, N, name, use_bias=True)
        for name in ('query', 'forget', 'value'))
    log_f_BxLxHxN, k_BxLxHxN = self._gates(
        forget_BxLxHxN.astype(jnp.float32), shared)
    operands = (nn.sigmoid(q_BxLxHxN), k_BxLxHxN.astype(self.dtype),
                nn.silu(v_BxLxHxN), log_f_BxLxHxN)
    o_BxLxHxN = sum(self.attend(lambda reverse: operands, mask_BxL))
    o_BxLxD = norm.LayerNorm(
        self.dtype, 1e-5 if self.released else norm.EPS, name='norm')(
        o_BxLxHxN.reshape(x_BxLxD.shape))
    return layers.Projection(
        (width,), (width,), self.dtype, name='out')(o_BxLxD)

  def _gates(self, forget_BxLxHxN, shared):
    """Returns log f and the key 1 - f, from logits of f without its bound."""
    log_f, k = jax.nn.log_sigmoid(forget_BxLxHxN), nn.sigmoid(-forget_BxLxHxN)
    if shared is None or not self.layer:
      return log_f, k
    bound_HxN = shared[self.layer].reshape(forget_BxLxHxN.shape[2:])[None, None]
    # log(l + (1 - l) f) without cancellation, and (1 - l) (1 - f)
    log_f = jnp.logaddexp(jnp.log(bound_HxN), jnp.log1p(-bound_HxN) + log_f)
    return log_f, (1 - bound_HxN) * k
