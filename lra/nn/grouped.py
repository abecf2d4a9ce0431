"""Softmax attention whose query heads share heads of keys and values."""

import kernels
from lra.errors import UserError
from lra.nn import layers
from lra.nn.mixer import HeadMixer


class GroupedMixer(HeadMixer):
  """H heads of queries, G of keys and values: x [B, L, D] -> [B, L, D].

  Each H / G consecutive query heads read one head of keys and values, without a
  copy. A subclass defines `groups`.

  Attributes: those of `HeadMixer`, and
    kernel: 'auto' or one of `kernels.OPS['softmax']`.

  Raises:
    UserError: the heads do not divide the width, G does not divide H, or the
      kernel is unknown or cannot run here.
  """
  kernel: str = 'auto'

  op = 'softmax'

  def groups(self) -> int:
    """Returns G, the number of heads of keys and values."""
    raise NotImplementedError

  def project(self, x_BxLxD):
    """Returns queries [B, L, H, Dh], and keys and values [B, L, G, Dh]."""
    groups = self.groups()
    if self.num_heads % groups:
      raise UserError(
          f'config.model.num_kv_heads={groups} does not divide '
          f'config.model.num_heads={self.num_heads}: choose a divisor.')
    width = groups * layers.head_width(self.qkv_width, self.num_heads)
    return tuple(
        layers.project_heads(x_BxLxD, heads, total, self.dtype, name,
                             self.qkv_bias)
        for name, heads, total in (
            ('query', self.num_heads, self.qkv_width),
            ('key', groups, width), ('value', groups, width)))

  def mix(self, q_BxLxHxDh, k_BxLxGxDh, v_BxLxGxDh, mask_BxL, *, train):
    """See `HeadMixer.mix`."""
    return kernels.sharded(kernels.softmax_attention)(
        q_BxLxHxDh, k_BxLxGxDh, v_BxLxGxDh, mask=mask_BxL, kernel=self.kernel)
