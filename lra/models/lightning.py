"""Lightning attention: causal linear attention with a decay per head.

Heads as in MiniMax-01: SiLU on queries, keys and values, RMS norm over the
heads together, an output projection. Its sigmoid output gate is `gate`, off by
default to keep the Transformer's number of parameters. Its decay is the same
in every layer here; MiniMax-01 lets it shrink with depth. `direction`
bidirectional adds the same attention read from the end (a token meets itself
twice), which neither paper does.

Family: linear
Equation: S_t = e^(-s_h) S_(t-1) + K_t^T V_t, O_t = RMSNorm(Q_t S_t),
  s_h = 2^(-8h/H), h = 1..H
Cost: O(L D Dh)
Source: Qin et al. 2024, arXiv 2401.04658, eq. 3-4; MiniMax 2025,
  arXiv 2501.08313, section 2.2
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

import kernels
from lra.errors import UserError
from lra.nn import layers

KERNELS = ('xla', 'pallas_gpu', 'pallas_tpu')
DIRECTIONS = ('causal', 'bidirectional')


class Mixer(nn.Module):
  """Lightning attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes:
    num_heads: H.
    qkv_width: H * Dh, the width of all heads together.
    kernel: 'auto', 'xla', 'pallas_gpu' or 'pallas_tpu'.
    direction: `causal`, or `bidirectional`: both ways, summed.
    decay: False sets all slopes to 0, plain causal linear attention.
    gate: whether sigmoid(x W_g) multiplies the normalised heads.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: an unknown direction, or the heads do not divide the width.
    NotImplementedError: the named kernel cannot run here.
  """
  num_heads: int = 8
  qkv_width: int = 512
  kernel: str = 'auto'
  direction: str = 'causal'
  decay: bool = True
  gate: bool = False
  dtype: jnp.dtype = jnp.float32

  @property
  def causal(self) -> bool:
    """Whether a position sees nothing that comes after it."""
    return self.direction == 'causal'

  def implementation(self, length: int, width: int) -> str:
    """The kernel that runs for x [B, length, width], for the record."""
    return layers.linear_kernel('lightning', self, length)

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    if self.direction not in DIRECTIONS:
      raise UserError(
          f'config.model.direction={self.direction!r} is not possible: choose '
          f'one of {", ".join(DIRECTIONS)}.')
    qkv = tuple(nn.silu(y) for y in layers.project_qkv(
        x, self.num_heads, self.qkv_width, self.dtype))
    o_BxLxHxDh = self._attend(qkv, mask)
    if not self.causal:
      flipped = tuple(jnp.flip(y, 1) for y in qkv)
      o_BxLxHxDh += jnp.flip(self._attend(flipped, jnp.flip(mask, 1)), 1)
    o_BxLxHxDh = nn.RMSNorm(
        reduction_axes=(-2, -1), feature_axes=(-2, -1), dtype=self.dtype,
        name='norm')(o_BxLxHxDh)
    if self.gate:
      o_BxLxHxDh *= nn.sigmoid(layers.project_heads(
          x, self.num_heads, self.qkv_width, self.dtype, name='gate'))
    return layers.merge_heads_and_project(
        o_BxLxHxDh, x.shape[-1], self.dtype)

  def _attend(self, qkv, mask):
    slopes = None if self.decay else jnp.zeros(self.num_heads)
    return kernels.sharded(kernels.lightning_attention)(
        *qkv, mask=mask, slopes=slopes, implementation=self.kernel)
