"""Selective attention: tokens may mark others as no longer needed.

If the first head's logit of token k for token j is positive, it says how much k
wants j to be forgotten. These wishes of all tokens k before i are summed, and
subtracted from the logits of i for j in all heads. The paper is causal; in a
bidirectional layer a token may mark any token j, but only tokens k before i
count for i.

Equation: F_ij = sum over k < i of S_kj, S_kj = relu(q^1_k k^1_j / sqrt(Dh)), 0
  for j = 0 and j = k and if k may not see j;
  softmax_j(q_i k_j / sqrt(Dh) - F_ij) v_j per head, then an output projection
Source: Leviathan et al. 2024, arXiv 2410.02703, section 3
"""

import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn import arrays, direction, partials
from lra.nn.mixer import AttentionMixer
from lra.schema import fields

ABOUT = About('dense', 'O(L^2 D) time, O(L D + L^2 / 128) memory', time=2)
ROWS = 128  # queries processed at a time


class Mixer(direction.Directed, AttentionMixer):
  direction: str = fields.argument(
      'bidirectional', 'Whether a token attends to earlier tokens only, or to '
      'all.', choices=direction.CHOICES)

  @property
  def traits(self):
    return super().traits.but(ordered=False)

  def state_size(self, width: int, length: int) -> int:
    return self.kv_size(length) + length  # a sum for each token

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    return attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL,
                  causal=self.causal)


def attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, causal: bool,
           rows: int = ROWS):
  """Attends by blocks of `rows` queries: [B, L, H, Dh].

  Each block passes its sum of wishes to forget, float32 [B, L], to the next.
  These sums are saved; the backward pass recomputes the rest.
  """
  B, L, H, Dh = q_BxLxHxDh.shape
  rows = min(rows, L)
  q, asks = (arrays.cut(y, rows).swapaxes(0, 1) for y in (
      q_BxLxHxDh, mask_BxL))
  blocks = q, asks, jnp.arange(len(q) * rows).reshape(-1, rows)
  key_L, v_BxHxLxDh = jnp.arange(L), v_BxLxHxDh.swapaxes(1, 2)

  @jax.checkpoint
  def one(forgotten_BxL, block):
    q_BxRxHxDh, asks_BxR, place_R = block
    logits_BxHxRxL = Dh**-0.5 * jnp.einsum(
        'brhd,blhd->bhrl', q_BxRxHxDh, k_BxLxHxDh,
        preferred_element_type=jnp.float32)
    seen_RxL = (key_L[None] <= place_R[:, None]) | (not causal)
    spared_RxL = (key_L[None] == 0) | (
        key_L[None] == place_R[:, None]) | ~seen_RxL
    select_BxRxL = jnp.where(
        spared_RxL[None] | ~asks_BxR[..., None] | ~mask_BxL[:, None],
        0, jax.nn.relu(logits_BxHxRxL[:, 0]))
    until_BxRxL = forgotten_BxL[:, None] + jnp.cumsum(select_BxRxL, axis=1)
    before_BxRxL = jnp.concatenate(
        [forgotten_BxL[:, None], until_BxRxL[:, :-1]], axis=1)
    allowed = mask_BxL[:, None, None] & seen_RxL[None, None]
    bias_BxHxRxL = partials.forbid(allowed) - before_BxRxL[:, None]
    o_BxHxRxDh = partials.normalise(
        partials.weigh(logits_BxHxRxL + bias_BxHxRxL, v_BxHxLxDh))
    return until_BxRxL[:, -1], o_BxHxRxDh.astype(v_BxLxHxDh.dtype)

  start = jnp.zeros((B, L), jnp.float32)
  _, o_NxBxHxRxDh = jax.lax.scan(one, start, blocks)
  o_BxNxRxHxDh = o_NxBxHxRxDh.transpose(1, 0, 3, 2, 4)
  return o_BxNxRxHxDh.reshape(B, -1, H, Dh)[:, :L]
