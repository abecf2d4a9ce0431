"""Local-p attention: each token predicts where to look, and looks around it.

Every head of every token predicts a centre, as a position among the tokens
without padding, and a Gaussian around it multiplies the softmax weights.
Gradients reach the centre through the Gaussian only. In the paper a decoder
with one head attends to the states of an encoder; here a sequence attends to
itself. The score is Luong's general one, h^T W s with W = Wq Wk^T for each
head, divided by sqrt(Dh). Values are projected.

Equation: a_ij = exp(-(j - p_i)^2 / (2 sigma^2)) times the softmax over
  { j : |j - p_i| <= w } of q_i k_j / sqrt(Dh), sigma = w / 2,
  p_i = L sigmoid(v^T tanh(W x_i)), L the number of tokens
Source: Luong et al. 2015, arXiv 1508.04025, section 3.2, eq. 9-10
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn import arrays, layers, partials
from lra.nn.mixer import AttentionMixer
from lra.schema import fields

ABOUT = About('sparse', 'O(L D^2 + L w D)')

CHUNK = 128  # number of queries processed at a time


class Mixer(AttentionMixer):
  half_width: int = fields.count(
      10, 'Number of tokens that are seen on either side of the predicted '
      "centre, w (the paper's D).")

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh = self.project(x_BxLxD)
    o_BxLxHxDh = local_attention(
        q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL,
        self._centres(x_BxLxD, mask_BxL), self.half_width)
    return self.merge(o_BxLxHxDh, x_BxLxD)

  def _centres(self, x_BxLxD, mask_BxL):
    """Returns the centres p, float32 [B, L, H]."""
    # bfloat16 cannot distinguish neighbours among thousands of positions.
    hidden_BxLxHxDh = jnp.tanh(layers.project_heads(
        x_BxLxD, self.num_heads, self.qkv_width, jnp.float32, 'centre',
        self.qkv_bias))
    H, Dh = hidden_BxLxHxDh.shape[2:]
    score_HxDh = self.param(
        'centre_score', nn.initializers.normal(Dh**-0.5), (H, Dh))
    share_BxLxH = jax.nn.sigmoid(
        jnp.einsum('blhk,hk->blh', hidden_BxLxHxDh, score_HxDh))
    return mask_BxL.sum(1)[:, None, None].astype(share_BxLxH.dtype) * (
        share_BxLxH)


def local_attention(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, centre_BxLxH,
                    half_width: int) -> jax.Array:
  """Attends around given centres, `CHUNK` queries at a time: like `v`.

  Centres are positions, from 0, among the tokens without padding; padding is
  not attended to. The result is 0 in a sequence without tokens.
  """
  L = mask_BxL.shape[1]
  order_BxL, _, count_B = arrays.tokens_first(mask_BxL)
  # float32, because sums over windows form the gradients of k and v.
  k_BxHxLxDh, v_BxHxLxDh = (
      arrays.take(x, order_BxL).swapaxes(1, 2).astype(jnp.float32)
      for x in (k_BxLxHxDh, v_BxLxHxDh))
  size = min(2 * half_width + 1, L)

  @jax.checkpoint
  def chunk(q_BxHxCxDh, centre_BxHxC):
    start_BxHxC = jnp.clip(
        jnp.ceil(centre_BxHxC - half_width), 0, L - size).astype(jnp.int32)
    k, v = (_windows(x, start_BxHxC, size) for x in (k_BxHxLxDh, v_BxHxLxDh))
    j_BxHxCxW = start_BxHxC[..., None] + jnp.arange(size)[None, None, None]
    apart_BxHxCxW = j_BxHxCxW.astype(
        centre_BxHxC.dtype) - centre_BxHxC[..., None]
    seen_BxHxCxW = (jnp.abs(apart_BxHxCxW) <= half_width) & (
        j_BxHxCxW < count_B[:, None, None, None])
    logits_BxHxCxW = jnp.einsum(
        'bhcd,bhcwd->bhcw', q_BxHxCxDh.astype(jnp.float32), k
    ) * q_BxHxCxDh.shape[-1]**-0.5
    weights_BxHxCxW = jax.nn.softmax(
        logits_BxHxCxW + partials.forbid(seen_BxHxCxW))
    gauss_BxHxCxW = jnp.exp(-2 * jnp.square(apart_BxHxCxW / half_width))
    weights_BxHxCxW *= jnp.where(seen_BxHxCxW, gauss_BxHxCxW, 0)
    return jnp.einsum('bhcw,bhcwd->bhcd', weights_BxHxCxW, v)

  o_BxHxLxDh = _over_chunks(chunk, q_BxLxHxDh.swapaxes(1, 2),
                            centre_BxLxH.swapaxes(1, 2))
  return o_BxHxLxDh.swapaxes(1, 2).astype(v_BxLxHxDh.dtype)


def _windows(x_BxHxLxDh, start_BxHxC, size):
  """Returns W = `size` positions from each start on, [B, H, C, W, Dh]."""
  def one(x_LxDh, start):
    return jax.lax.dynamic_slice_in_dim(x_LxDh, start, size)

  return jax.vmap(jax.vmap(jax.vmap(one, (None, 0))))(x_BxHxLxDh, start_BxHxC)


def _over_chunks(function, *arrays_BxHxL):
  """Applies a function of C queries, [B, H, C, ...], to all L by chunks."""
  L = arrays_BxHxL[0].shape[2]
  chunk = min(CHUNK, L)

  def split(x_BxHxL):
    B, H, _, *rest = x_BxHxL.shape
    padded = jnp.pad(
        x_BxHxL, ((0, 0), (0, 0), (0, -L % chunk), *[(0, 0)] * len(rest)))
    return jnp.moveaxis(padded.reshape(B, H, -1, chunk, *rest), 2, 0)

  o_NxBxHxC = jax.lax.map(
      lambda x: function(*x), tuple(split(x) for x in arrays_BxHxL))
  o_BxHxNxC = jnp.moveaxis(o_NxBxHxC, 0, 2)
  B, H, _, _, *rest = o_BxHxNxC.shape
  return o_BxHxNxC.reshape(B, H, -1, *rest)[:, :, :L]
