"""Linear Transformer: attention with the feature map elu(x) + 1.

Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)), phi(x) = elu(x) + 1
Source: Katharopoulos et al. 2020, arXiv 2006.16236, eq. 5 and 7
"""

import kernels
from lra.nn.mixer import HeadMixer

FAMILY = 'linear'
COST = 'O(L D Dh)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_tpu')


class Mixer(HeadMixer):
  """Linear attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `HeadMixer`, and
    kernel: 'auto' or one of `KERNELS`.
  """
  kernel: str = 'auto'

  op = 'linear'

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    """See `HeadMixer.mix`."""
    return kernels.sharded(kernels.linear_attention)(
        q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask=mask_BxL, kernel=self.kernel)
