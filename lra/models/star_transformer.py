"""Star-Transformer: a ring of neighbours and one relay node that reads all.

Every token has a satellite node. In each of T rounds, every satellite attends
to its neighbours, itself, the token's embedding (the mixer's input) and the
relay; then the relay, at first the mean of the embeddings, attends to itself
and all satellites. Padding is skipped; the first and the last token are
neighbours. Rounds have separate projections, as in the released code.

The released code attends to zeros beyond the ends instead of a ring. It
normalises satellites before they attend, has a leaky ReLU, and pools the relay
with the satellites.

Equation: h_i = LN(ReLU(MultiAtt(h_i, [h_(i-1); h_i; h_(i+1); e_i; s]))), all i
  at once, then s = LN(ReLU(MultiAtt(s, [s; h_1; ...; h_L]))), T times
Source: Guo et al. 2019, arXiv 1902.09113, section 3.2 and algorithm 1
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn import arrays, layers, norm, partials
from lra.nn.mixer import HeadMixer
from lra.schema import fields

ABOUT = About('sparse', 'O(L T D^2)')


class Mixer(HeadMixer):
  rounds: int = fields.argument(2, 'Number of rounds, T.', low=1, high=64)

  def state_size(self, width: int, length: int) -> int:
    near = min(2 * self.rounds + 1, length)
    return width * (self.rounds + near)

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    order_BxL, place_BxL, count_B = arrays.tokens_first(mask_BxL)
    keep_BxL = jnp.arange(mask_BxL.shape[1])[None] < count_B[:, None]
    e_BxLxD = jnp.where(
        keep_BxL[..., None], arrays.take(x_BxLxD, order_BxL), 0)
    mean_Bx1xD = e_BxLxD.sum(1, keepdims=True, dtype=jnp.float32) / (
        jnp.maximum(count_B, 1).astype(jnp.float32)[:, None, None])
    h_BxLxD, s_Bx1xD = (y.astype(self.dtype) for y in (e_BxLxD, mean_Bx1xD))
    e_BxLxD = h_BxLxD
    for t in range(self.rounds):
      h_BxLxD = self._ring(h_BxLxD, e_BxLxD, s_Bx1xD, count_B, f'ring_{t}')
      if t < self.rounds - 1:
        s_Bx1xD = self._relay(s_Bx1xD, h_BxLxD, keep_BxL, f'relay_{t}')
    return arrays.take(h_BxLxD, place_BxL)

  def _ring(self, h_BxLxD, e_BxLxD, s_Bx1xD, count_B, name):
    q_BxLxHxDh = self.heads(h_BxLxD, f'{name}_query')
    context = jnp.concatenate([h_BxLxD, e_BxLxD, s_Bx1xD], 1)
    L = h_BxLxD.shape[1]

    def parts(y):
      h, e, s = y[:, :L], y[:, L:2 * L], y[:, 2 * L:]
      return (_previous(h, count_B), h, _next(h, count_B), e, s)

    keys, values = (parts(self.heads(context, f'{name}_{kind}'))
                    for kind in ('key', 'value'))
    scale = q_BxLxHxDh.shape[-1]**-0.5
    logits_BxLxHx5 = scale * jnp.stack([
        jnp.einsum('blhd,blhd->blh', q_BxLxHxDh,
                   jnp.broadcast_to(k, q_BxLxHxDh.shape),
                   preferred_element_type=jnp.float32) for k in keys], -1)
    weights_BxLxHx5 = jax.nn.softmax(logits_BxLxHx5)
    o_BxLxHxDh = sum(weights_BxLxHx5[..., n, None] * v.astype(jnp.float32)
                     for n, v in enumerate(values))
    return self._update(o_BxLxHxDh.astype(self.dtype), h_BxLxD, name)

  def _relay(self, s_Bx1xD, h_BxLxD, keep_BxL, name):
    q_BxHx1xDh = self.heads(s_Bx1xD, f'{name}_query').swapaxes(1, 2)
    context = jnp.concatenate([s_Bx1xD, h_BxLxD], 1)
    k, v = (self.heads(context, f'{name}_{kind}').swapaxes(1, 2)
            for kind in ('key', 'value'))
    seen_BxK = jnp.pad(keep_BxL, ((0, 0), (1, 0)), constant_values=True)
    part = partials.partial_softmax(
        q_BxHx1xDh, k, v, bias=partials.forbid(seen_BxK)[:, None, None])
    o_Bx1xHxDh = partials.normalise(part).swapaxes(1, 2)
    return self._update(o_Bx1xHxDh.astype(self.dtype), s_Bx1xD, name)

  def _update(self, o_BxLxHxDh, x_BxLxD, name):
    o_BxLxD = layers.Projection(
        o_BxLxHxDh.shape[2:], x_BxLxD.shape[-1:], self.dtype,
        name=f'{name}_out')(o_BxLxHxDh)
    return norm.LayerNorm(dtype=self.dtype, name=f'{name}_norm')(
        nn.relu(o_BxLxD))


def _previous(x_BxL, count_B):
  """Returns y_i = x_(i-1); the last token comes before the first."""
  last_Bx1 = arrays.take(x_BxL, jnp.maximum(count_B - 1, 0)[:, None])
  return jnp.concatenate([last_Bx1, x_BxL[:, :-1]], 1)


def _next(x_BxL, count_B):
  """Returns y_i = x_(i+1); the first token comes after the last."""
  L = x_BxL.shape[1]
  is_last_BxL = jnp.arange(L)[None] == count_B[:, None] - 1
  is_last = is_last_BxL.reshape(*is_last_BxL.shape, *(1,) * (x_BxL.ndim - 2))
  return jnp.where(is_last, x_BxL[:, :1], jnp.roll(x_BxL, -1, 1))
