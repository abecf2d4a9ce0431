"""Additive attention: queries and keys are added, not multiplied.

Keys are processed in tiles, and the backward pass recomputes the logits of a
tile. The paper has a single query, the decoder's state; here every token is a
query.

Equation: softmax_j(w_h . tanh(q_i + k_j)) v_j per head h, then an output
  projection. Computed with tanh(x) = 1 - 2 r, r = 1 / (1 + exp(2q) exp(2k)):
  the 1 cancels in the softmax, and exponentials are per token, not per pair
Source: Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2
"""

import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn import layers, partials
from lra.nn.mixer import AttentionMixer

ABOUT = About('dense', 'O(L^2 D) time with a division each, O(L) memory',
              time=2)
TILE = 64  # number of queries, and of keys, in a tile
# Queries and keys are clipped to +-40, so that exp(2 q) and exp(2 k) are
# neither 0 nor infinite. Their product may be, but it is never infinity times
# 0.
_LARGEST = 40.0
_AT_ONCE = 16  # terms of a logit that are summed without going through memory


class Mixer(AttentionMixer):

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    weight_HxDh = self.param(
        'score', layers.KERNEL_INIT, q_BxLxHxDh.shape[2:])
    return attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, weight_HxDh, mask_BxL)


def attend(q_BxLxHxDh, k_BxSxHxDh, v_BxSxHxDv, weight_HxDh, mask_BxS,
           tile: int = TILE):
  """Returns softmax_j(w . tanh(q_i + k_j)) v_j, [B, L, H, Dv] like `v`.

  Computes in float32, on at most `tile` queries and keys at a time. The result
  is 0 if the mask allows no key.
  """
  B, L, H, _ = q_BxLxHxDh.shape
  q_NxDhxBxHxI, k_MxDhxBxHxJ = (
      _tiles(x, tile).transpose(0, 4, 1, 2, 3) for x in (
          q_BxLxHxDh, k_BxSxHxDh))
  bias_MxBxJ = partials.forbid(
      _tiles(mask_BxS[..., None, None], tile)[:, :, 0, :, 0])
  o_NxBxHxIxDv = _attend(
      q_NxDhxBxHxI, k_MxDhxBxHxJ, _tiles(v_BxSxHxDv, tile),
      weight_HxDh.T.astype(jnp.float32), bias_MxBxJ)
  o_BxNxIxHxDv = o_NxBxHxIxDv.transpose(1, 0, 3, 2, 4)
  return o_BxNxIxHxDv.reshape(B, -1, H, v_BxSxHxDv.shape[-1])[:, :L].astype(
      v_BxSxHxDv.dtype)


def _tiles(x_BxLxHxD, tile):
  """Cuts into N tiles of I positions, [N, B, H, I, D]; pads with 0 or False."""
  B, L, H, D = x_BxLxHxD.shape
  rows = -(-L // -(-L // tile))
  if L > tile:  # rows become a multiple of 16, which a CPU computes at once
    rows = min(tile, -(-rows // 16) * 16)
  x = jnp.pad(x_BxLxHxD, ((0, 0), (0, -L % rows), (0, 0), (0, 0)))
  x = x if x.dtype == bool else x.astype(jnp.float32)
  return x.reshape(B, -1, rows, H, D).transpose(1, 0, 3, 2, 4)


@jax.custom_vjp
def _attend(q_NxDhxBxHxI, k_MxDhxBxHxJ, v_MxBxHxJxDv, weight_DhxH, bias_MxBxJ):
  """Attends over tiles: float32 [N, B, H, I, Dv]."""
  return _forward(
      q_NxDhxBxHxI, k_MxDhxBxHxJ, v_MxBxHxJxDv, weight_DhxH, bias_MxBxJ)[0]


def _forward(q_NxDhxBxHxI, k_MxDhxBxHxJ, v_MxBxHxJxDv, weight_DhxH, bias_MxBxJ):
  f_MxDhxBxHxJ = _exponential(k_MxDhxBxHxJ)

  def block(q_DhxBxHxI):
    e_DhxBxHxI = _exponential(q_DhxBxHxI)

    def add(part, keys):
      f_DhxBxHxJ, v_BxHxJxDv, bias_BxJ = keys
      logits = _logits(e_DhxBxHxI, f_DhxBxHxJ, weight_DhxH, bias_BxJ)
      return partials.merge([part, partials.weigh(logits, v_BxHxJxDv)]), None

    shape = q_DhxBxHxI.shape[1:]
    start = partials.Partial(
        jnp.zeros((*shape, v_MxBxHxJxDv.shape[-1])),
        jnp.full(shape, partials.FORBIDDEN / 2), jnp.zeros(shape))
    part, _ = jax.lax.scan(
        add, start, (f_MxDhxBxHxJ, v_MxBxHxJxDv, bias_MxBxJ))
    total = jnp.where(part.sum > 0, part.sum, 1)
    return partials.normalise(part), part.max + jnp.log(total)

  o_NxBxHxIxDv, log_sum_NxBxHxI = jax.lax.map(block, q_NxDhxBxHxI)
  return o_NxBxHxIxDv, (q_NxDhxBxHxI, k_MxDhxBxHxJ, v_MxBxHxJxDv, weight_DhxH,
                        bias_MxBxJ, o_NxBxHxIxDv, log_sum_NxBxHxI)


def _backward(kept, do_NxBxHxIxDv):
  """Returns gradients; loops over tiles of keys, then over tiles of queries."""
  (q_NxDhxBxHxI, k_MxDhxBxHxJ, v_MxBxHxJxDv, weight_DhxH, bias_MxBxJ,
   o_NxBxHxIxDv, log_sum_NxBxHxI) = kept
  dot_NxBxHxI = (do_NxBxHxIxDv * o_NxBxHxIxDv).sum(-1)
  e_NxDhxBxHxI = _exponential(q_NxDhxBxHxI)

  def of_keys(carry, keys):
    dq_NxDhxBxHxI, dweight_DhxH = carry
    f_DhxBxHxJ, v_BxHxJxDv, bias_BxJ = keys

    def of_queries(carry, queries):
      dk_DhxBxHxJ, dv_BxHxJxDv, dweight_DhxH = carry
      e_DhxBxHxI, do_BxHxIxDv, log_sum_BxHxI, dot_BxHxI, dq_DhxBxHxI = queries
      logits = _logits(e_DhxBxHxI, f_DhxBxHxJ, weight_DhxH, bias_BxJ)
      p_BxHxIxJ = jnp.exp(logits - log_sum_BxHxI[..., None])
      dp_BxHxIxJ = jnp.einsum('bhie,bhje->bhij', do_BxHxIxDv, v_BxHxJxDv)
      dlogits = p_BxHxIxJ * (dp_BxHxIxJ - dot_BxHxI[..., None])
      dv_BxHxJxDv += jnp.einsum('bhij,bhie->bhje', p_BxHxIxJ, do_BxHxIxDv)
      dq, dk, dweight = _of_logits(
          dlogits, e_DhxBxHxI, f_DhxBxHxJ, weight_DhxH)
      return (dk_DhxBxHxJ + dk, dv_BxHxJxDv, dweight_DhxH + dweight), (
          dq_DhxBxHxI + dq)

    (dk_DhxBxHxJ, dv_BxHxJxDv, dweight_DhxH), dq_NxDhxBxHxI = jax.lax.scan(
        of_queries,
        (jnp.zeros_like(f_DhxBxHxJ), jnp.zeros_like(v_BxHxJxDv), dweight_DhxH),
        (e_NxDhxBxHxI, do_NxBxHxIxDv, log_sum_NxBxHxI, dot_NxBxHxI,
         dq_NxDhxBxHxI))
    return (dq_NxDhxBxHxI, dweight_DhxH), (dk_DhxBxHxJ, dv_BxHxJxDv)

  (dq_NxDhxBxHxI, dweight_DhxH), (dk_MxDhxBxHxJ, dv_MxBxHxJxDv) = jax.lax.scan(
      of_keys, (jnp.zeros_like(q_NxDhxBxHxI), jnp.zeros_like(weight_DhxH)),
      (_exponential(k_MxDhxBxHxJ), v_MxBxHxJxDv, bias_MxBxJ))
  return dq_NxDhxBxHxI, dk_MxDhxBxHxJ, dv_MxBxHxJxDv, dweight_DhxH, None


_attend.defvjp(_forward, _backward)


def _exponential(x):
  return jnp.exp(2 * jnp.clip(x, -_LARGEST, _LARGEST))


def _logits(e_DhxBxHxI, f_DhxBxHxJ, weight_DhxH, bias_BxJ):
  """Returns -2 sum_d w_d r_d plus the bias, float32 [B, H, I, J]."""
  def add(logits, term):
    e_BxHxI, f_BxHxJ, weight_H = term
    return logits - 2 * weight_H[None, :, None, None] * _ratio(
        e_BxHxI, f_BxHxJ), None

  start = jnp.broadcast_to(
      bias_BxJ[:, None, None], (*e_DhxBxHxI.shape[1:], bias_BxJ.shape[-1]))
  return jax.lax.scan(add, start, (e_DhxBxHxI, f_DhxBxHxJ, weight_DhxH),
                      unroll=_AT_ONCE)[0]


def _of_logits(dlogits, e_DhxBxHxI, f_DhxBxHxJ, weight_DhxH):
  """Returns gradients of queries, keys and weights: dr/dx = -2 r (1 - r)."""
  def one(_, term):
    e_BxHxI, f_BxHxJ, weight_H = term
    r_BxHxIxJ = _ratio(e_BxHxI, f_BxHxJ)
    by_weight = dlogits * r_BxHxIxJ
    by_sum = by_weight * (1 - r_BxHxIxJ)
    four_1xHx1 = 4 * weight_H[None, :, None]
    return None, (four_1xHx1 * by_sum.sum(-1), four_1xHx1 * by_sum.sum(-2),
                  -2 * by_weight.sum((0, 2, 3)))

  return jax.lax.scan(one, None, (e_DhxBxHxI, f_DhxBxHxJ, weight_DhxH))[1]


def _ratio(e_BxHxI, f_BxHxJ):
  """Returns r = 1 / (1 + exp(2 (q_i + k_j))), [B, H, I, J]."""
  return 1 / (1 + e_BxHxI[..., None] * f_BxHxJ[..., None, :])
