"""SimpleTRON-Res: SimpleTRON with a skip inside the attention layer.

Family: linear
Equation: X + (1/sqrt(L)) Q (K^T V), besides the block's own residual
Cost: O(L D Dh)
Source: Yorsh et al. 2021, arXiv 2111.15588, Table 1
"""

from lra.models import simpletron

KERNELS = ('xla', 'pallas_gpu', 'pallas_tpu')


class Mixer(simpletron.Mixer):
  """`simpletron.Mixer` whose input is added to its heads."""
  skip: bool = True
