"""cosFormer: ReLU features, with weights that fade with distance as a cosine.

Since cos(a - b) = cos a cos b + sin a sin b, the weight of two positions is a
dot product of features. N is the padded length, even if `config.train.lengths`
cuts padding off. The normaliser has 1e-6 added; the released code clips it from
below instead, and also has a causal form.

Equation: sum_j w_ij v_j / sum_j w_ij,
  w_ij = relu(q_i) . relu(k_j) cos(pi/2 (i - j) / N)
Source: Qin et al. 2022, arXiv 2202.08791, section 3.2
"""

import jax
import jax.numpy as jnp
import numpy as np

from lra.models import About
from lra.nn import features

# N is the padded length.
ABOUT = About('linear', 'O(L D Dh)',
              kernels=('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu'),
              mixes_padding=True)


class Mixer(features.FeatureMixer):

  def feature_width(self, head_width):
    return 2 * head_width

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    length = mask_BxL.shape[1]
    angle_1xLx1x1 = np.pi / 2 * np.arange(length)[None, :, None, None] / (
        self.full_length or length)
    parts = np.cos(angle_1xLx1x1), np.sin(angle_1xLx1x1)

    def phi(y_BxLxHxDh):
      y_BxLxHxDh = jax.nn.relu(y_BxLxHxDh.astype(jnp.float32))
      return jnp.concatenate(
          [y_BxLxHxDh * np.float32(part) for part in parts],
          -1).astype(self.dtype)

    return self.attend(
        phi(q_BxLxHxDh), phi(k_BxLxHxDh), v_BxLxHxDh, mask_BxL)
