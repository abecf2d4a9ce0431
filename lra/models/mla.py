"""Multi-head latent attention: keys and values from one low-rank latent.

The keys and values of all heads, linear in the latent c of width R, are never
computed: the key matrix of a head is applied to its query, and the value matrix
to the head's output. Attention then runs over the latents as one shared head.
Queries come from another latent. Both latents have an RMS norm, as in the
released code; the paper's equations leave it out.

Equation: c_j = X_j W_DKV, k_j = [c_j W_UK; RoPE(X_j W_KR)], v_j = c_j W_UV,
  q_i = [c'_i W_UQ; RoPE(c'_i W_QR)], c'_i = X_i W_DQ,
  softmax(q_i k_j^T / sqrt(Dh + Dr)) v_j per head, then an output projection
Source: DeepSeek-AI 2024, arXiv 2405.04434, eq. 9-19; 2024, arXiv 2412.19437,
  eq. 1-11
"""

import flax.linen as nn
import jax.numpy as jnp

from lra import kernels
from lra.core.errors import UserError
from lra.models import About
from lra.nn import layers, norm, rotary
from lra.nn.contraction import Dense
from lra.nn.mixer import BaseMixer
from lra.schema import fields

ABOUT = About('dense', 'O(L^2 H (R + Dr)) time; O(L^2) memory dense, else O(L)',
              time=2, kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(BaseMixer):
  num_heads: int = 8
  qkv_width: int = 512
  kv_rank: int = fields.count(
      64, 'Width of the latent vector for keys and values, R.')
  query_rank: int = fields.count(64, 'Width of the latent vector for queries.')
  rotary_width: int = fields.count(
      16, 'Width of the rotated part of queries and keys, Dr; must be even.',
      low=2)
  kernel: str = 'auto'

  op = 'softmax'

  def state_size(self, width: int, length: int) -> int:
    return length * (self.kv_rank + self.rotary_width)

  def kernel_call(self, length, width):
    size = self.kv_rank + self.rotary_width
    return {'shape': (1, length * self.num_heads, 1, size),
            'dtype': self.dtype, 'value_width': self.kv_rank}

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    if self.rotary_width % 2:
      raise UserError(
          f'config.model.rotary_width={self.rotary_width} cannot be rotated in '
          'pairs: choose an even number.')
    c_BxLxR = self._latent(x_BxLxD, self.kv_rank, 'kv')
    down_BxLxRq = self._latent(x_BxLxD, self.query_rank, 'query')
    Dh = layers.head_width(self.qkv_width, self.num_heads)
    q_BxLxHxDh = self._heads(down_BxLxRq, Dh, 'query_up')
    turned = [rotary.rotate(self._heads(x, self.rotary_width, name, heads))
              for x, name, heads in (
                  (down_BxLxRq, 'query_rotary', self.num_heads),
                  (x_BxLxD, 'key_rotary', 1))]
    key_RxHxDh, value_RxHxDh = (self._up(name, Dh) for name in (
        'key_up', 'value_up'))
    q_BxLxHxR = jnp.einsum('blhd,rhd->blhr', q_BxLxHxDh, key_RxHxDh)
    c_BxLx1xR = c_BxLxR[:, :, None]
    o_BxLxHxR = kernels.sharded(kernels.softmax_attention)(
        jnp.concatenate([q_BxLxHxR, turned[0]], -1),
        jnp.concatenate([c_BxLx1xR, turned[1]], -1), c_BxLx1xR,
        mask=mask_BxL, scale=(Dh + self.rotary_width) ** -0.5,
        kernel=self.kernel)
    o_BxLxHxDh = jnp.einsum('blhr,rhd->blhd', o_BxLxHxR, value_RxHxDh)
    return layers.merge_heads_and_project(
        o_BxLxHxDh, x_BxLxD.shape[-1], self.dtype)

  def _latent(self, x_BxLxD, rank, name):
    down = Dense(rank, use_bias=False, dtype=self.dtype,
                 kernel_init=layers.KERNEL_INIT, name=f'{name}_down')
    return norm.RMSNorm(dtype=self.dtype, name=f'{name}_norm')(down(x_BxLxD))

  def _heads(self, x_BxLxR, width, name, heads=None):
    heads = heads or self.num_heads
    return layers.project_heads(x_BxLxR, heads, heads * width, self.dtype,
                                name, False)

  def _up(self, name, width):
    heads = self.num_heads, width
    weight_RxE, _ = layers.Projection(
        (self.kv_rank,), heads, self.dtype, False, name=name).weights()
    return weight_RxE.reshape(-1, *heads).astype(self.dtype)
