"""SimpleTRON-ResL: SimpleTRON with an inner skip and an output projection.

The projection is applied to the sum of input and heads. The scale counts
padded positions too.

Equation: (X + (1/sqrt(L)) Q (K^T V)) Wo + bo
Source: Yorsh et al. 2021, arXiv 2111.15588, Table 1
"""

from lra.models import simpletron

FAMILY = 'linear'
COST = 'O(L D (Dh + D))'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu')
MIXES_PADDING = True  # the scale depends on the padded length


class Mixer(simpletron.Mixer):
  """`simpletron.Mixer` with skip and output projection."""
  skip = True
  output_projection = True
