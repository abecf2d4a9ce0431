"""SimpleTRON: attention without softmax, evaluated as Q (K^T V).

This is the paper's "Simple" layer, without the inner skip of its variants and,
by default, without their output projection. L in the scale counts padded
positions too, as in the released code, even those that `config.train.lengths`
cuts off. The released code does not mask padding: set
`config.mask_padding = False` to reproduce it.

Equation: (1/sqrt(L)) Q (K^T V) per head
Source: Yorsh et al. 2021, arXiv 2111.15588, section 3
"""

from lra import kernels
from lra.core.errors import UserError
from lra.models import About
from lra.nn import layers
from lra.nn.mixer import LinearMixer
from lra.schema import fields

# The scale depends on the padded length.
ABOUT = About('linear', 'O(L D Dh)',
              kernels=('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu'),
              mixes_padding=True)


class Mixer(LinearMixer):
  """SimpleTRON attention; qkv_width must be D."""
  op = 'simpletron'
  operations = (kernels.simpletron_attention,
                kernels.simpletron_attention_packed)
  skip = False  # whether x is added to the heads ("-Res")
  output_projection: bool = fields.argument(
      False, 'True adds a dense layer after the heads. The paper found that a '
      'deep encoder with it and without the inner skip does not train.')

  def kernel_for(self, length, width):
    if self.qkv_width != width:
      raise UserError(
          f'config.model.qkv_width={self.qkv_width} must equal '
          f'config.encoder.width={width}: SimpleTRON adds its heads to the '
          'residual stream as they are.')
    return super().kernel_for(length, width)

  def options(self):
    return {'scale': self.full_length and self.full_length ** -0.5}

  def merge(self, o_BxLxHxDh, x_BxLxD):
    if self.skip:
      o_BxLxHxDh += layers.split_heads(x_BxLxD, self.num_heads)
    if self.output_projection:
      return super().merge(o_BxLxHxDh, x_BxLxD)
    return o_BxLxHxDh.reshape(x_BxLxD.shape)


class Res(Mixer):
  """SimpleTRON-Res: SimpleTRON with a skip inside the attention layer.

  Equation: X + (1/sqrt(L)) Q (K^T V), besides the block's own residual
  Source: Yorsh et al. 2021, arXiv 2111.15588, Table 1
  """
  skip = True


class ResL(Mixer):
  """SimpleTRON-ResL: SimpleTRON with an inner skip and an output projection.

  Equation: (X + (1/sqrt(L)) Q (K^T V)) Wo + bo
  Source: Yorsh et al. 2021, arXiv 2111.15588, Table 1
  """
  ABOUT = About('linear', 'O(L D (Dh + D))',
                kernels=('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu'),
                mixes_padding=True)

  skip = True
  output_projection: bool = fields.argument(
      True, 'True adds a dense layer after the heads, as in the paper.')
