"""Generative-PRF: linear attention with a kernel from a generator, positive.

The same frequencies as in `generative_rks`, with positive features.

Family: kernel
Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
  phi(x) = sqrt(1 / M) exp(w . x - |x|^2), w = g(n), n ~ N(0, I)
Cost: O(L M D)
Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3
"""

from lra.nn import spectral

KERNELS = spectral.KERNELS


class Mixer(spectral.SpectralMixer):
  """x [B, L, D], mask [B, L] bool -> [B, L, D]; see SpectralMixer."""
  positive = True

  def density(self, num_frequencies, head_width, train):
    return spectral.generated(
        self, num_frequencies, head_width, train)
