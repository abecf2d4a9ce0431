"""Cross attention: learned latents read the sequence and write back to it.

Tokens see each other only through M latents. This is the induced attention of
Set Transformers without its inner MLP, norms and residual sum; a Perceiver
reads in the same way but does not write back.

Equation: Z' = softmax(Z (X Wk)^T / sqrt(Dh)) X Wv,
  softmax(X Wq (Z' Wk')^T / sqrt(Dh)) Z' Wv' per head, then an output
  projection; Z: [M, H, Dh] learned, Wk' and Wv' per head
Source: Lee et al. 2019, arXiv 1810.00825, eq. 9-10; Jaegle et al. 2021,
  arXiv 2103.03206, section 3.1
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About
from lra.nn import layers
from lra.nn.mixer import SoftmaxMixer
from lra.schema import fields

ABOUT = About('low-rank', 'O(L M D) time, O(L) memory',
              kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(SoftmaxMixer):
  num_latents: int = fields.count(64, 'Number of latents, M.')

  def state_size(self, width: int) -> int:
    return self.num_latents * self.qkv_width

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    B, _, H, Dh = q_BxLxHxDh.shape
    # Unit normal, so that latents read differently from the start.
    latents_MxHxDh = self.param(
        'latents', nn.initializers.normal(1.0), (self.num_latents, H, Dh))
    z_BxMxHxDh = jnp.broadcast_to(
        latents_MxHxDh.astype(self.dtype), (B, self.num_latents, H, Dh))
    read_BxMxHxDh = self.attend(z_BxMxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL)
    key_BxMxHxDh, value_BxMxHxDh = (
        jnp.einsum('bmhd,hde->bmhe', read_BxMxHxDh, self.param(
            name, layers.KERNEL_INIT, (H, Dh, Dh)).astype(self.dtype))
        for name in ('latent_key', 'latent_value'))
    return self.attend(q_BxLxHxDh, key_BxMxHxDh, value_BxMxHxDh)
