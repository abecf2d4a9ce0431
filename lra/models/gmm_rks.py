"""GMM-RKS: linear attention, its kernel a learned Gaussian mixture, in cosines.

The kernel is shift invariant, k(x, y) = sum_c pi_c exp(-|s_c (x - y)|^2 / 2)
cos(mu_c . (x - y)), and learned per head through its spectral density. It is
estimated without bias from M random features, with error ~ 1 / sqrt(M). Two of
the features, those of frequency 0, add 1 to the kernel so that no weight is
negative; the released code adds 0.13. Covariances are diagonal; the released
code has one Gaussian per head, with a full factor.

Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
  phi(x) = sqrt(pi_c / S) [cos(w . x), sin(w . x)], w ~ N(mu_c, diag(s_c^2)),
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
  """GMM-RKS attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `SpectralMixer`, and
    num_components: C, number of Gaussians per head.
  """
  num_components: int = fields.argument(2, low=1, high=fields.MANY)

  def density(self, num_frequencies, head_width, train):
    """See `SpectralMixer.density`."""
    return spectral.gaussian_mixture(
        self, self.num_components, num_frequencies, head_width, train)
