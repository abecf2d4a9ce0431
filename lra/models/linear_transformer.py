"""Linear Transformer: attention with the feature map elu(x) + 1.

Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)), phi(x) = elu(x) + 1
Source: Katharopoulos et al. 2020, arXiv 2006.16236, eq. 5 and 7
"""

from lra import kernels
from lra.models import About
from lra.nn.mixer import LinearMixer

ABOUT = About('linear', 'O(L D Dh)',
              kernels=('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu'))


class Mixer(LinearMixer):

  op = 'linear'
  normalised = True
  operations = (kernels.linear_attention, kernels.linear_attention_packed)
