"""Lightning attention: causal linear attention with a decay per head.

Heads as in MiniMax-01: SiLU on queries, keys and values, RMS norm over all
heads together, an output projection. MiniMax-01 also has `gate` and
`decay_by_depth`; they are off by default, to keep the Transformer's number of
parameters and as in the first paper. A bidirectional layer adds attention in
reverse order, so a token sees itself twice; no paper has this.

Equation: S_t = e^(-s_h) S_(t-1) + K_t^T V_t, O_t = RMSNorm(Q_t S_t),
  s_h = 2^(-8h/H), h = 1..H
Source: Qin et al. 2024, arXiv 2401.04658, eq. 3-4; MiniMax 2025,
  arXiv 2501.08313, section 2.2
"""

import flax.linen as nn
import jax.numpy as jnp

from lra import kernels
from lra.core.errors import UserError
from lra.models import About
from lra.nn import direction, layers, norm
from lra.nn.mixer import LinearMixer
from lra.schema import fields

ABOUT = About('linear', 'O(L D Dh)',
              kernels=('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu'))


class Mixer(direction.Directed, LinearMixer):
  direction: str = fields.argument(
      'causal', 'Bidirectional sums both directions.',
      choices=direction.CHOICES)
  decay: bool = fields.argument(
      True, 'False sets all s_h to 0: plain causal linear attention.')
  decay_by_depth: bool = fields.argument(
      False, "Whether s_h, not 0, shrinks with depth as in MiniMax-01's model, "
      'times 1 - layer / (num_layers - 1 + 1e-5) + 1e-5. The factor is about 1 '
      'in the first layer and almost 0 in the last.')
  gate: bool = fields.argument(
      False, 'Whether an output gate, sigmoid(x W_g), multiplies the '
      'normalised heads.')
  layer: int = 0
  num_layers: int = 1

  op = 'lightning'
  operations = (kernels.lightning_attention,
                kernels.lightning_attention_packed)

  def state_size(self, width: int) -> int:
    return super().state_size(width) * self.passes

  def slopes(self):
    """Returns s_h of each head, [H]; None means 2^(-8h/H)."""
    if self.decay_by_depth and not self.decay:
      raise UserError('config.model.decay_by_depth=True has no decay to '
                      'shrink: set config.model.decay=True.')
    if not self.decay:
      return jnp.zeros(self.num_heads)
    if not self.decay_by_depth:
      return None
    h = jnp.arange(1, self.num_heads + 1)
    depth = self.layer / (self.num_layers - 1 + 1e-5)
    return 2.0 ** (-8 * h / self.num_heads) * (1 - depth + 1e-5)

  def options(self):
    return {'slopes': self.slopes(), 'activation': 'silu'}

  def attend(self, *operands, mask, **arrays):
    attend = super().attend

    def one_way(reverse):
      if not reverse:
        return attend(*operands, mask=mask, **arrays)
      flipped = (jnp.flip(y, 1) for y in operands)
      return jnp.flip(attend(*flipped, mask=jnp.flip(mask, 1), **arrays), 1)

    return self.run(one_way, join='sum')

  def merge(self, o_BxLxHxDh, x_BxLxD):
    if self._at_once(o_BxLxHxDh):
      return self._merge_at_once(o_BxLxHxDh, x_BxLxD)
    o_BxLxHxDh = norm.RMSNorm(
        reduction_axes=(-2, -1), feature_axes=(-2, -1), dtype=self.dtype,
        name='norm')(o_BxLxHxDh)
    if self.gate:
      o_BxLxHxDh *= nn.sigmoid(self.heads(x_BxLxD, 'gate'))
    return super().merge(o_BxLxHxDh, x_BxLxD)

  def _at_once(self, o_BxLxHxDh):
    # A TPU's compiler fuses the norm and the matmul; a GPU needs a kernel.
    if self.gate or kernels.platform() == 'cpu':
      return False
    if kernels.platform() == 'tpu':
      return True
    shape = (*o_BxLxHxDh.shape[:2], self.qkv_width)
    return self.kernel != 'xla' and kernels.resolve(
        'norm_project', 'auto', shape, self.dtype) != 'xla'

  def _merge_at_once(self, o_BxLxHxDh, x_BxLxD):
    heads = o_BxLxHxDh.shape[2:]
    scale_E = _Scale(heads, name='norm')().reshape(-1)
    kernel_ExD, bias_D = layers.Projection(
        heads, x_BxLxD.shape[-1:], self.dtype, name='out').weights()
    return kernels.sharded(kernels.norm_project)(
        o_BxLxHxDh.reshape(*o_BxLxHxDh.shape[:2], -1),
        weight=scale_E[:, None] * kernel_ExD, bias=bias_D)


class _Scale(nn.Module):
  """Holds the parameter of `nn.RMSNorm` without applying it."""
  shape: tuple[int, ...]

  @nn.compact
  def __call__(self):
    return self.param('scale', nn.initializers.ones, self.shape)
