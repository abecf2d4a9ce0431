"""SimpleTRON-Res: SimpleTRON with a skip inside the attention layer.

The scale counts padded positions too.

Equation: X + (1/sqrt(L)) Q (K^T V), besides the block's own residual
Source: Yorsh et al. 2021, arXiv 2111.15588, Table 1
"""

from lra.models import simpletron

FAMILY = 'linear'
COST = 'O(L D Dh)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu')
MIXES_PADDING = True  # the scale depends on the padded length


class Mixer(simpletron.Mixer):
  """A `simpletron.Mixer` that adds its input to its heads."""
  skip = True
