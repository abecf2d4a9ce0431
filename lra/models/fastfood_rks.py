"""FastFood-RKS: linear attention with a learned FastFood kernel, cosines.

The frequencies are the rows of S H G P H B / sqrt(W), with learned diagonals
S, G, B that start as FastFood's estimate of the Gaussian kernel
exp(-|x - y|^2 / 2). The frequency 0 adds 1 to the kernel so that no weight is
negative, as in the released code. That code has Dh frequencies, shared by the
heads. Here each head has its own, in as many blocks as M needs.

Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
  phi(x) = sqrt(1 / F) [cos(w_f . x), sin(w_f . x)], w = S H G P H B / sqrt(W),
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
  """FastFood-RKS attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `SpectralMixer`.
  """
  redraw: bool = False

  def density(self, num_frequencies, head_width, train):
    """See `SpectralMixer.density`."""
    return spectral.fastfood(self, num_frequencies, head_width, train)
