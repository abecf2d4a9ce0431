"""SimpleTRON: attention without softmax, evaluated as Q (K^T V).

The paper's "Simple" layer: the heads, side by side, are the output; there is
neither an inner skip nor an output projection. Its two variants are
`simpletron_res` and `simpletron_resl`. L in the scale counts padded positions
too, as in the released code, also those that `config.train.lengths` cuts off.
That code masks no padding either: `config.mask_padding = False` reproduces it.

Equation: (1/sqrt(L)) Q (K^T V) per head
Source: Yorsh et al. 2021, arXiv 2111.15588, section 3
"""

from lra.errors import UserError
from lra.nn import layers
from lra.nn.linear_mixer import LinearMixer

FAMILY = 'linear'
COST = 'O(L D Dh)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu')
MIXES_PADDING = True  # the scale depends on the padded length


class Mixer(LinearMixer):
  """SimpleTRON attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `LinearMixer`, whose qkv_width is D here, and
    skip: whether x is added to the heads ("-Res").
    output_projection: whether a dense layer follows ("-ResL").

  Raises:
    UserError: the heads do not divide the width, or qkv_width is not D.
  """
  skip: bool = False
  output_projection: bool = False

  op = 'simpletron'

  def kernel_for(self, length, width):
    """See `HeadMixer.kernel_for`."""
    if self.qkv_width != width:
      raise UserError(
          f'config.model.qkv_width={self.qkv_width} must equal '
          f'config.encoder.width={width}: SimpleTRON adds its heads to the '
          'residual stream as they are.')
    return super().kernel_for(length, width)

  def options(self):
    """See `LinearMixer.options`."""
    return {'scale': self.full_length and self.full_length ** -0.5}

  def merge(self, o_BxLxHxDh, x_BxLxD):
    """The heads side by side, [B, L, D], with what the variants add."""
    if self.skip:
      o_BxLxHxDh += layers.split_heads(x_BxLxD, self.num_heads)
    if self.output_projection:
      return super().merge(o_BxLxHxDh, x_BxLxD)
    return o_BxLxHxDh.reshape(x_BxLxD.shape)
