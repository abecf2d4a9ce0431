"""GMM-PRF: linear attention, its kernel a learned Gaussian mixture, positive.

Uses the density of `gmm_rks` with positive features. The kernel is
k(x, y) = sum_c pi_c exp(mu_c . (x + y) + |s_c (x + y)|^2 / 2 - |x|^2 - |y|^2),
positive for any number of features. It is estimated without bias from M random
features, with error ~ 1 / sqrt(M). Covariances are diagonal; the released code
has one Gaussian per head.

Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
  phi(x) = sqrt(pi_c / S) exp(w . x - |x|^2), w ~ N(mu_c, diag(s_c^2)),
  x scaled by Dh^(-1/4)
Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3
"""

from lra.config import fields
from lra.nn import spectral

FAMILY = 'kernel'
COST = 'O(L M D)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu')


class Mixer(spectral.SpectralMixer):
  """GMM-PRF attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `SpectralMixer`, and
    num_components: C, number of Gaussians per head.
  """
  num_components: int = fields.argument(2, low=1, high=fields.MANY)

  positive = True

  def density(self, num_frequencies, head_width, train):
    """See `SpectralMixer.density`."""
    return spectral.gaussian_mixture(
        self, self.num_components, num_frequencies, head_width, train)
