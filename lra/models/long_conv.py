"""Long convolutions: kernels as long as the sequence, each tap a parameter.

Kernels are small at first, and taps below a threshold count as 0 (`squash`).
`kernel_dropout` drops taps, the same for a whole batch. Reverse kernels begin
at the next token, as in the authors' code, whose settings for Long Range Arena
have one direction on ListOps, Text, Retrieval and Image. The paper's models
have `encoder.block=none`.

Equation: y_c = k_c * x + k'_c * x (reversed) + d_c x,
  k = sign(w) max(|w| - squash, 0); a gated GELU of all y_c
Source: Fu et al. 2023, arXiv 2302.06646, section 3, and the released code
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About
from lra.nn import direction, draws
from lra.nn.convolution import convolve
from lra.nn.dropout import drop
from lra.nn.state_space import GatedOutput
from lra.schema import fields

ABOUT = About('state space', 'O(L D (log L + D))')
PARAM_GROUPS = ('kernels', 'kernels_reverse')

STD = 0.002  # standard deviation of initial taps


class Mixer(direction.DirectedMixer):
  num_kernels: int = fields.argument(
      2, 'Number of kernels of each channel, c.', low=1, high=1024)
  squash: float = fields.argument(
      0.003, 'Threshold of the kernels: values closer to 0 become 0.', low=0,
      high=1.0)
  kernel_dropout: float = fields.argument(
      0.2, 'Dropout rate of the values of the kernels.', low=0, below=1)
  full_length: int | None = None

  def state_size(self, width: int, length: int) -> int:
    return length * width

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0).astype(jnp.float32)
    width = x_BxLxD.shape[-1]
    kernels_CxDxK = [
        self._kernels(name, x_BxLxD.shape[1:], train) for name in (
            'kernels', 'kernels_reverse')[:self.passes]]
    d_CxD = self.param(
        'd', nn.initializers.normal(1.0), (self.num_kernels, width))
    y_BxLxE = jnp.concatenate([
        convolve(x_BxLxD, *both, own_twice=False) + d_D[None, None] * x_BxLxD
        for d_D, *both in zip(d_CxD, *kernels_CxDxK, strict=True)], -1)
    return GatedOutput('full_glu', self.dropout, self.dtype, exact=True,
                       width=width, tie_dropout=self.tie_dropout,
                       name='output')(y_BxLxE, train=train)

  def _kernels(self, name, shape, train):
    length, width = shape
    w_CxDxK = self.param(
        name, nn.initializers.normal(STD),
        (self.num_kernels, width, self.full_length or length))[..., :length]
    k_CxDxK = jnp.sign(w_CxDxK) * nn.relu(jnp.abs(w_CxDxK) - self.squash)
    if not (train and self.kernel_dropout):
      return k_CxDxK
    return drop(draws.step_key(self), k_CxDxK, self.kernel_dropout)
