"""Nystromformer: softmax attention through landmarks, means of segments.

The n tokens of a sequence, without padding, are cut into m = min(M, n) segments
whose lengths differ by at most one; a landmark is the mean of a segment. The
iteration for the pseudo-inverse is float32, because it magnifies rounding
errors. A depth-wise convolution of the values, one for each head, is added.

In the code released for Long Range Arena landmarks average padding too, and as
many landmarks as positions give plain softmax attention. Its iteration
(`pinv_init` original) starts from the largest column sum in the whole batch, so
that examples change each other's outputs.

Equation: softmax(Q K~^T / s) softmax(Q~ K~^T / s)^+ softmax(Q~ K^T / s) V +
  conv(V) per head, s = sqrt(Dh), Q~ and K~ means of segments; output projection
Source: Xiong et al. 2021, arXiv 2102.03902, section 3, Algorithm 1;
  released code
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.kernels.softmax import dense
from lra.models import About
from lra.nn import convolution
from lra.nn.mixer import SoftmaxMixer
from lra.schema import fields

ABOUT = About('low-rank', 'O(L M D + H M^3)',
              kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(SoftmaxMixer):
  num_landmarks: int = fields.argument(
      64, 'Number of landmarks, M.', low=1, high=2**14)
  pinv_steps: int = fields.argument(
      6, 'Number of iterations of the pseudo-inverse. If landmarks are '
      'similar, many iterations magnify rounding errors.', low=1, high=20)
  pinv_init: str = fields.argument(
      'exact', 'Scale at the start of the pseudo-inverse: the largest column '
      "sum of the whole batch ('original') or of each head and sequence "
      "('exact').", choices=('original', 'exact'))
  conv_width: int = fields.argument(
      35, 'Number of tokens under the kernel of the convolution of the values; '
      '0 means no convolution.', low=0, high=1024)

  def state_size(self, width: int, length: int) -> int:
    landmarks = min(self.num_landmarks, length)
    return self.kv_size(landmarks) + convolution.under_kernel(
        self.conv_width, self.qkv_width, length)

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    scale = q_BxLxHxDh.shape[-1]**-0.5
    mean_BxLxM, mask_BxM = segments(
        mask_BxL, min(self.num_landmarks, mask_BxL.shape[1]))
    q_BxMxHxDh, k_BxMxHxDh = (
        _product('blm,blhd->bmhd', mean_BxLxM,
                 jnp.where(mask_BxL[:, :, None, None], y, 0))
        for y in (q_BxLxHxDh, k_BxLxHxDh))
    read_BxMxHxDh = self.attend(
        q_BxMxHxDh.astype(self.dtype), k_BxLxHxDh, v_BxLxHxDh, mask_BxL)

    def attend(queries):
      logits_BxHxLxM = scale * _product('blhd,bmhd->bhlm', queries, k_BxMxHxDh)
      return dense.masked_softmax(logits_BxHxLxM, mask_BxM)

    between_BxHxMxM = jnp.where(
        mask_BxM[:, None, :, None], attend(q_BxMxHxDh), 0)
    inverse_BxHxMxM = pseudo_inverse(
        between_BxHxMxM, self.pinv_steps, self.pinv_init == 'exact')
    o_BxLxHxDh = _product(
        'bhlm,bmhd->blhd', attend(q_BxLxHxDh),
        _product('bhmn,bnhd->bmhd', inverse_BxHxMxM, read_BxMxHxDh))
    return o_BxLxHxDh.astype(self.dtype) + self._pass(v_BxLxHxDh, mask_BxL)

  def _pass(self, v_BxLxHxDh, mask_BxL):
    if not self.conv_width:
      return 0
    weight_KxHx1 = self.param(
        'conv', nn.initializers.variance_scaling(
            1 / 3, 'fan_in', 'uniform', in_axis=0, out_axis=2, batch_axis=1),
        (self.conv_width, self.num_heads, 1))
    v_BxLxHxDh = jnp.where(mask_BxL[:, :, None, None], v_BxLxHxDh, 0)
    return convolution.depthwise(v_BxLxHxDh, jnp.broadcast_to(
        weight_KxHx1, (self.conv_width, *v_BxLxHxDh.shape[2:])))


def segments(mask_BxL, most: int) -> tuple[jax.Array, jax.Array]:
  """Cuts the tokens of a sequence into at most M = `most` segments.

  Returns weights that average segments, float32 [B, L, M], and whether each
  segment exists, bool [B, M].
  """
  tokens_Bx1 = mask_BxL.sum(1, keepdims=True)
  count_Bx1 = jnp.minimum(tokens_Bx1, most)
  segment_BxL = ((jnp.cumsum(mask_BxL, 1) - 1) * count_Bx1
                 // jnp.maximum(tokens_Bx1, 1))
  inside_BxLxM = mask_BxL[..., None] & (
      segment_BxL[..., None] == jnp.arange(most)[None, None])
  size_Bx1xM = jnp.maximum(inside_BxLxM.sum(1, keepdims=True), 1)
  return (inside_BxLxM.astype(jnp.float32) / size_Bx1xM.astype(jnp.float32),
          jnp.arange(most)[None] < count_Bx1)


def pseudo_inverse(a_BxHxMxM, steps: int, exact: bool) -> jax.Array:
  """Computes the Moore-Penrose inverse by iteration, float32 [B, H, M, M].

    Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4,  Z_0 = A^T / |A|_1

  Rows of A sum to at most 1, so the first guess is divided only by |A|_1, the
  largest column sum: of each matrix if `exact`, else of all matrices.
  """
  identity_1x1xMxM = jnp.eye(a_BxHxMxM.shape[-1])[None, None]
  columns_BxHxM = a_BxHxMxM.sum(-2)
  norm = (columns_BxHxM.max(-1)[..., None, None] if exact else
          columns_BxHxM.max())
  z_BxHxMxM = a_BxHxMxM.swapaxes(-1, -2) / jnp.where(norm > 0, norm, 1)
  for _ in range(steps):
    az_BxHxMxM = _product('bhij,bhjk->bhik', a_BxHxMxM, z_BxHxMxM)
    inner_BxHxMxM = 7 * identity_1x1xMxM - az_BxHxMxM
    for constant in (15, 13):
      inner_BxHxMxM = constant * identity_1x1xMxM - _product(
          'bhij,bhjk->bhik', az_BxHxMxM, inner_BxHxMxM)
    z_BxHxMxM = _product('bhij,bhjk->bhik', z_BxHxMxM, inner_BxHxMxM) / 4
  return z_BxHxMxM


def _product(subscripts, x, y):
  return jnp.einsum(subscripts, x.astype(jnp.float32), y.astype(jnp.float32),
                    precision='highest')
