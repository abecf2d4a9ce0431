"""FastFood-PRF: linear attention with a learned FastFood kernel, positive.

Uses the frequencies of `fastfood_rks` with positive features.

Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
  phi(x) = sqrt(1 / M) exp(w_f . x - |x|^2), w = S H G P H B / sqrt(W),
  x scaled by Dh^(-1/4)
Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3; FastFood is Le,
  Sarlos & Smola 2013, arXiv 1408.3060
"""

from lra.nn import spectral

FAMILY = 'kernel'
COST = 'O(L M D)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu')


class Mixer(spectral.SpectralMixer):
  """FastFood-PRF attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `SpectralMixer`.
  """
  redraw: bool = False

  positive = True

  def density(self, num_frequencies, head_width, train):
    """See `SpectralMixer.density`."""
    return spectral.fastfood(self, num_frequencies, head_width, train)
