"""Generative-RKS: linear attention with a kernel from a generator, cosines.

A network maps noise to frequencies, so the spectral density has no closed form.
The kernel's estimate converges as 1 / sqrt(M) to its limit for infinitely many
samples; the batch normalisation over the samples changes this slightly. The
frequency 0 adds 1 to the kernel so that no weight is negative, as in the
released code.

Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
  phi(x) = sqrt(1 / F) [cos(w . x), sin(w . x)], w = g(n), n ~ N(0, I),
  x scaled by Dh^(-1/4)
Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3
"""

from lra.nn import spectral

FAMILY = 'kernel'
COST = 'O(L M D)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu')


class Mixer(spectral.SpectralMixer):
  """Generative-RKS attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `SpectralMixer`.
  """

  def density(self, num_frequencies, head_width, train):
    """See `SpectralMixer.density`."""
    return spectral.generated(self, num_frequencies, head_width, train)
