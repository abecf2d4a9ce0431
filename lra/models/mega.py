"""Mega: attention with one gated head over a damped moving average.

Each channel has n exponential moving averages; a bidirectional layer sums
different averages of both directions. Queries and keys are two scaled copies of
one projection of the averages. A learned number for each distance is added to
the logits. A gate u updates the residual stream x before the norm: the mixer
returns u (h' - x), and applies dropout itself. The authors' settings for Long
Range Arena have a `truncation` of 1,024 taps, 4,096 for Path-X, and
feed-forward layers with SiLU, not GELU.

Equation: m = SiLU(K * x + w x),  K[l] = sum_n p_n beta_n gamma_n / sqrt(n)
  (1 - p_n alpha_n)^l;  v = SiLU(x W_v),  u = sigmoid(m W_u),
  h' = SiLU(m W_h + (r * f(q k^T + b) v) W_o),  y = x + u (h' - x)
Source: Ma et al. 2023, arXiv 2209.10655, sections 3 and 4, and the released
  code
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn import arrays, convolution, direction
from lra.nn.contraction import Dense
from lra.nn.convolution import convolve, exponential_sums
from lra.nn.dropout import Dropout
from lra.schema import fields

ABOUT = About('state space', 'O(L^2 D) time, O(L D) memory', time=2)

ATTENTIONS = ('softmax', 'laplace')
ROWS = 128  # queries processed at a time
STD = 0.02  # standard deviation of initial weights


class Mixer(direction.DirectedMixer):
  ema_dim: int = fields.argument(
      16, 'Number of moving averages of each channel, n.', low=1, high=4096)
  z_width: int = fields.count(64, 'Width of the queries and keys.')
  v_width: int = fields.count(0, 'Width of the values; 0 means 2 D.', low=0)
  attention: str = fields.argument(
      'softmax', 'Function of the logits: `softmax` or `laplace`.',
      choices=ATTENTIONS)
  chunk_size: int = fields.count(
      0, 'Number of tokens in a chunk. Tokens attend only within their chunk; '
      '0 means one chunk for all.', low=0)
  truncation: int = fields.count(
      0, 'Number of taps of the averages, one for each token that they '
      'include; 0 means L.', low=0)
  full_length: int | None = None

  @property
  def traits(self):
    return super().traits.but(gates_residual=True)

  def state_size(self, width: int, length: int) -> int:
    ways = self.passes
    taps = ways * (self.truncation - 1) + 1
    averages = (convolution.under_kernel(taps, width, length) if self.truncation
                else ways * self.ema_dim * width)
    seen = min(self.chunk_size or length, length)
    return averages + seen * (self.z_width + (self.v_width or 2 * width))

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train,
               residual: jax.Array | None = None):
    """Returns u (h' - residual), for the input before the norm or x."""
    residual = x_BxLxD if residual is None else residual
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0).astype(self.dtype)
    D, Z = x_BxLxD.shape[-1], self.z_width
    V = self.v_width or 2 * D
    v_BxLxV = nn.silu(self._dense(V, 'value')(x_BxLxD))
    m_BxLxD = MovingAverage(
        self.ema_dim, self.truncation, self.passes, name='average')(x_BxLxD)
    m_BxLxD = Dropout(self.dropout, self.tie_dropout, name='drop_average')(
        m_BxLxD.astype(self.dtype), deterministic=not train)
    u, z, r, h = jnp.split(
        self._dense(2 * D + Z + V, 'base')(m_BxLxD),
        [D, D + Z, D + Z + V], axis=-1)
    scale_2xZ = self.param('scale', nn.initializers.normal(STD), (2, Z))
    shift_2xZ = self.param('shift', nn.initializers.zeros, (2, Z))
    q_BxLxZ, k_BxLxZ = (
        nn.silu(z) * a[None, None].astype(self.dtype)
        + b[None, None].astype(self.dtype)
        for a, b in zip(scale_2xZ, shift_2xZ, strict=True))
    o_BxLxV = self._attend(q_BxLxZ, k_BxLxZ, v_BxLxV, mask_BxL)
    h_BxLxD = nn.silu(h + self._dense(D, 'out')(o_BxLxV * nn.silu(r)))
    h_BxLxD = Dropout(self.dropout, self.tie_dropout, name='drop_out')(
        h_BxLxD, deterministic=not train)
    return nn.sigmoid(u) * (h_BxLxD - residual.astype(self.dtype))

  def _dense(self, width, name):
    return Dense(width, dtype=self.dtype, name=name,
                 kernel_init=nn.initializers.normal(STD))

  def _attend(self, q_BxLxZ, k_BxLxZ, v_BxLxV, mask_BxL):
    batch, length = mask_BxL.shape
    chunk = self.chunk_size or length
    most = self.chunk_size or self.full_length or length
    bias_S = self.param(
        'distance', nn.initializers.normal(STD), (2 * most - 1,))
    bias_S = bias_S[most - chunk:most + chunk - 1]
    chunks = (
        arrays.cut(y, chunk).reshape(-1, chunk, *y.shape[2:])
        for y in (q_BxLxZ, k_BxLxZ, v_BxLxV, mask_BxL))
    o_NxCxV = attend(*chunks, bias_S, self.attention, self.causal)
    return o_NxCxV.reshape(batch, -1, v_BxLxV.shape[-1])[:, :length]


class MovingAverage(nn.Module):
  """Damped moving averages of each channel; for the fields see `Mixer`."""
  ema_dim: int
  truncation: int
  passes: int

  @nn.compact
  def __call__(self, x_BxLxD) -> jax.Array:
    """Returns SiLU(K * x + w x), float32 [B, L, D]; x is 0 at padding."""
    length, width = x_BxLxD.shape[1:]
    taps = min(length, self.truncation or length)
    kernels_DxK = [
        self._kernel(name, width, taps) for name in ('forward', 'reverse')[
            :self.passes]]
    x_BxLxD = x_BxLxD.astype(jnp.float32)
    own_D = self.param('own', nn.initializers.normal(1.0), (width,))
    return nn.silu(convolve(x_BxLxD, *kernels_DxK)
                   + own_D[None, None] * x_BxLxD)

  def _kernel(self, name, width, taps):
    normal, shape = nn.initializers.normal, (width, self.ema_dim)
    signs_N = jnp.where(jnp.arange(self.ema_dim) % 2, -1.0, 1.0)
    step_DxN, damping_DxN, expand_DxN, project_DxN = (
        self.param(f'{name}_{part}', init, shape) for part, init in (
            ('step', normal(0.2)), ('damping', normal(0.2)),
            ('expand', lambda key, shape: signs_N[None] + normal(STD)(
                key, shape)),
            ('project', normal(1.0))))
    p_DxN = nn.sigmoid(step_DxN)
    weight_DxN = p_DxN * expand_DxN * project_DxN / math.sqrt(self.ema_dim)
    return exponential_sums(
        weight_DxN, jnp.log1p(-p_DxN * nn.sigmoid(damping_DxN)), taps)


def attend(q_BxLxZ, k_BxLxZ, v_BxLxV, mask_BxL, bias_S, attention: str,
           causal: bool) -> jax.Array:
  """Attends by blocks of `ROWS` queries: [B, L, V] in the dtype of v.

    softmax: softmax_j(q_i k_j / sqrt(Z) + b_(j - i))
    laplace: (1 + erf((s - sqrt(1/2)) sqrt(2 pi))) / 2, for
      s = q_i k_j / (number of tokens that i may see) + b_(j - i)

  Logits are float32. `bias_S` is for the distances 1 - L ... L - 1.
  """
  length, rows = mask_BxL.shape[1], min(ROWS, mask_BxL.shape[1])
  count = -(-length // rows)
  q_NxBxRxZ = jnp.moveaxis(arrays.cut(q_BxLxZ, rows), 1, 0)
  # Rows that fill the last block need distances beyond L; their results are
  # dropped.
  bias_S = jnp.pad(bias_S, (count * rows - length, 0))

  def block(given):
    n, q_BxRxZ = given
    row_R = n * rows + jnp.arange(rows)
    bias_RxL = jax.vmap(lambda i: jax.lax.dynamic_slice(
        bias_S, (count * rows - 1 - i,), (length,)))(row_R)
    seen_BxRxL = mask_BxL[:, None]
    if causal:
      seen_BxRxL = seen_BxRxL & (
          row_R[:, None] >= jnp.arange(length)[None])[None]
    logits_BxRxL = jnp.einsum('brz,blz->brl', q_BxRxZ, k_BxLxZ,
                              preferred_element_type=jnp.float32)
    weights_BxRxL = _weights(
        logits_BxRxL, bias_RxL[None], seen_BxRxL, q_BxRxZ.shape[-1], attention)
    return jnp.einsum('brl,blv->brv', weights_BxRxL.astype(v_BxLxV.dtype),
                      v_BxLxV)

  o_NxBxRxV = jax.lax.map(
      jax.checkpoint(block), (jnp.arange(count), q_NxBxRxZ))
  o_BxNxRxV = jnp.moveaxis(o_NxBxRxV, 0, 1)
  return o_BxNxRxV.reshape(len(mask_BxL), -1, v_BxLxV.shape[-1])[:, :length]


def _weights(products, bias, seen, width, attention):
  """Returns attention weights [B, R, L] of q k^T, 0 at keys that are not seen.
  """
  if attention == 'softmax':
    logits = jnp.where(seen, products / math.sqrt(width) + bias, -1e30)
    top = jax.lax.stop_gradient(logits.max(-1, keepdims=True))
    weights = jnp.where(seen, jnp.exp(logits - top), 0)
    return weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30)
  count = jnp.maximum(seen.sum(-1, keepdims=True), 1).astype(products.dtype)
  # The authors' rounded constants sqrt(1 / 2) and 1 / sqrt(4 pi).
  scaled = (products / count + bias - 0.707107) / (0.282095 * math.sqrt(2))
  return jnp.where(seen, (1 + jax.lax.erf(scaled)) / 2, 0)
