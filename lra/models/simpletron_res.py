"""SimpleTRON-Res: SimpleTRON with a skip inside the attention layer.

The scale counts padded positions too.

Family: linear
Equation: X + (1/sqrt(L)) Q (K^T V), besides the block's own residual
Cost: O(L D Dh)
Source: Yorsh et al. 2021, arXiv 2111.15588, Table 1
"""

from lra.models import simpletron

KERNELS = ('xla', 'pallas_gpu', 'pallas_tpu')
MIXES_PADDING = True  # the scale depends on the padded length


class Mixer(simpletron.Mixer):
  """`simpletron.Mixer` whose input is added to its heads."""
  skip: bool = True
