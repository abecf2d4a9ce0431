"""Synthesizer: attention weights computed without comparing tokens.

`dense` predicts row i of the logits from x_i alone by a two-layer perceptron.
`random` learns the logits [L, L] of each head as parameters. `factorised_dense`
predicts A_i [a] and B_i [b], with a b >= L; the logit for j is A_i[j div b]
B_i[j mod b]. `factorised_random` learns the logits as R1 R2^T of rank k.
`trainable` False gives the paper's fixed variants. Its mixtures are left out,
among them the random + dot-product one of the Long Range Arena release.

The parameters fit one padded length L. The logits of `dense` and
`factorised_random` are the matmul of two [L, k] matrices: they run as softmax
attention with memory linear in L.

Equation: softmax(F(x_i)) V per head, F(x) = relu(x W1 + b1) W2 + b2 (dense), a
  learned [L, L] (random), or a factorised form of either; output projection
Source: Tay et al. 2020, arXiv 2005.00743, sections 3.1 to 3.1.4
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.core.errors import UserError
from lra.kernels.softmax import dense
from lra.models import About
from lra.nn import layers
from lra.nn.mixer import BaseMixer
from lra.schema import fields

# The parameters fit one padded length.
ABOUT = About(
    'dense',
    'O(L^2 D) time; O(L) memory dense and factorised_random, else O(L^2)',
    time=2, kernels=('dense', 'chunked', 'splash', 'cudnn'),
    mixes_padding=True)
VARIANTS = ('dense', 'random', 'factorised_dense', 'factorised_random')


class Mixer(BaseMixer):
  num_heads: int = 8
  qkv_width: int = 512
  variant: str = fields.argument(
      'dense', 'How the logits are made.', choices=VARIANTS)
  rank: int = fields.count(32, 'Rank of the logits of `factorised_random`, k.')
  trainable: bool = fields.argument(
      True, 'Whether the logits of the random variants are learned; otherwise '
      "the collection 'constants' keeps their initial values.")
  kernel: str = 'auto'
  full_length: int | None = None

  op = 'softmax'

  def kernel_call(self, length, width):
    head_width = layers.head_width(self.qkv_width, self.num_heads)
    row_width = head_width + 1 if self.variant == 'dense' else self.rank
    return {'shape': (1, length, self.num_heads, row_width),
            'dtype': self.dtype, 'value_width': head_width}

  def kernel_for(self, length, width):
    if not self.trainable and 'random' not in self.variant:
      raise UserError(f'config.model.variant={self.variant} has no random '
                      'logits to keep: leave config.model.trainable=True.')
    if self.variant in ('dense', 'factorised_random'):
      return super().kernel_for(length, width)
    layers.head_width(self.qkv_width, self.num_heads)  # refuses odd widths
    if self.kernel not in ('auto', 'dense'):
      raise UserError(f'config.model.variant={self.variant} needs '
                      'config.model.kernel=auto or dense.')
    return 'dense'

  def state_size(self, width: int, length: int) -> int:
    return length * self.qkv_width  # there are no keys

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    kernel = self.kernel_for(*x_BxLxD.shape[1:])
    v_BxLxHxDh = layers.project_heads(
        x_BxLxD, self.num_heads, self.qkv_width, self.dtype, 'value')
    if self.variant == 'random':
      o_BxLxHxDh = self._random(v_BxLxHxDh, mask_BxL)
    elif self.variant == 'factorised_dense':
      weights_BxHxLxL = dense.masked_softmax(
          self._factorised_dense_logits(x_BxLxD), mask_BxL)
      o_BxLxHxDh = dense.apply_weights(weights_BxHxLxL, v_BxLxHxDh)
    else:
      rows, columns = (self._dense(x_BxLxD) if self.variant == 'dense' else
                       self._factorised_random(*x_BxLxD.shape[:2]))
      o_BxLxHxDh = kernels.sharded(kernels.softmax_attention)(
          rows, columns, v_BxLxHxDh, mask=mask_BxL, scale=1.0, kernel=kernel)
    return layers.merge_heads_and_project(
        o_BxLxHxDh, x_BxLxD.shape[-1], self.dtype)

  def _dense(self, x_BxLxD):
    """Returns factors of the logits, [B, L, H, Dh + 1] each; the last is b2."""
    batch, length, _ = x_BxLxD.shape
    full = self.full_length or length
    hidden_BxLxHxDh = nn.relu(layers.project_heads(
        x_BxLxD, self.num_heads, self.qkv_width, self.dtype, 'hidden'))
    width = hidden_BxLxHxDh.shape[-1]
    w_LxHxDh = self.param('W2', nn.initializers.variance_scaling(
        1.0, 'fan_avg', 'uniform', in_axis=2, out_axis=0, batch_axis=1),
                          (full, self.num_heads, width))
    b_LxHx1 = self.param('b2', nn.initializers.zeros,
                         (full, self.num_heads, 1))
    one = jnp.ones_like(hidden_BxLxHxDh[..., :1])
    rows_BxLxHxE = jnp.concatenate([hidden_BxLxHxDh, one], -1)
    columns_LxHxE = jnp.concatenate(
        [w_LxHxDh, b_LxHx1], -1)[:length].astype(self.dtype)
    return rows_BxLxHxE, jnp.broadcast_to(
        columns_LxHxE, (batch, *columns_LxHxE.shape))

  def _factorised_random(self, batch, length):
    """Returns R1 and R2, each [B, L, H, rank]."""
    init = nn.initializers.variance_scaling(
        1.0, 'fan_avg', 'uniform', in_axis=2, out_axis=0, batch_axis=1)
    shape = (self.full_length or length, self.num_heads, self.rank)
    drawn = (self._drawn(name, init, shape)[:length].astype(self.dtype)
             for name in ('R1', 'R2'))
    return tuple(jnp.broadcast_to(x, (batch, *x.shape)) for x in drawn)

  def _drawn(self, name, init, shape):
    if self.trainable:
      return self.param(name, init, shape)
    return self.variable('constants', name, lambda: init(
        self.make_rng('params'), shape)).value

  def _random(self, v_BxLxHxDh, mask_BxL):
    """Attends with one table of logits for the whole batch and masks keys."""
    length = v_BxLxHxDh.shape[1]
    init = nn.initializers.variance_scaling(
        1.0, 'fan_avg', 'uniform', in_axis=1, out_axis=2, batch_axis=0)
    full = self.full_length or length
    logits_HxLxL = self._drawn('R', init, (self.num_heads, full, full))[
        :, :length, :length]
    # The maximum is over all keys, so that one table serves all masks. A row
    # underflows only if its true keys' logits are 80 below those of padded
    # keys.
    e_HxLxL = jnp.exp(logits_HxLxL - jax.lax.stop_gradient(
        logits_HxLxL.max(-1, keepdims=True))).astype(self.dtype)
    mask_BxLx1x1 = mask_BxL[:, :, None, None]
    v_BxLxHxDh = jnp.where(mask_BxLx1x1, v_BxLxHxDh, 0)
    sum_BxLxHxDh = jnp.einsum('hls,bshd->blhd', e_HxLxL, v_BxLxHxDh,
                              preferred_element_type=jnp.float32)
    norm_BxLxH = jnp.einsum('hls,bs->blh', e_HxLxL, mask_BxL.astype(self.dtype),
                            preferred_element_type=jnp.float32)
    has_key_BxLxHx1 = (norm_BxLxH > 0)[..., None]
    norm_BxLxHx1 = jnp.where(has_key_BxLxHx1, norm_BxLxH[..., None], 1)
    return (sum_BxLxHxDh / norm_BxLxHx1).astype(self.dtype)

  def _factorised_dense_logits(self, x_BxLxD):
    """Returns float32 [B, H, L, L]; each row is an outer product."""
    length = x_BxLxD.shape[1]
    full = self.full_length or length
    a = math.isqrt(full)
    b = -(-full // a)
    row_BxLxHxA, row_BxLxHxB = (
        self._short_row(x_BxLxD, name, size)
        for name, size in (('A', a), ('B', b)))
    row_BxLxHxA = row_BxLxHxA[..., :-(-length // b)]
    logits_BxHxLxAxB = jnp.einsum('blha,blhc->bhlac', row_BxLxHxA, row_BxLxHxB,
                                  preferred_element_type=jnp.float32)
    return logits_BxHxLxAxB.reshape(
        *logits_BxHxLxAxB.shape[:3], -1)[..., :length]

  def _short_row(self, x_BxLxD, name, size):
    hidden_BxLxHxDh = nn.relu(layers.project_heads(
        x_BxLxD, self.num_heads, self.qkv_width, self.dtype, f'hidden_{name}'))
    init = nn.initializers.variance_scaling(
        1.0, 'fan_avg', 'uniform', in_axis=1, out_axis=2, batch_axis=0)
    w_HxDhxS = self.param(f'W_{name}', init, (
        self.num_heads, hidden_BxLxHxDh.shape[-1], size))
    b_HxS = self.param(f'b_{name}', nn.initializers.zeros,
                       (self.num_heads, size))
    return jnp.einsum('blhd,hds->blhs', hidden_BxLxHxDh,
                      w_HxDhxS.astype(self.dtype)) + b_HxS.astype(self.dtype)
