"""From encoded positions to class scores: pooling, document pairs, head."""

import flax.linen as nn
import jax.numpy as jnp

from lra.nn import norm as norms
from lra.nn.dropout import Dropout
from lra.nn.encoder import Encoder, sinusoidal_positions


def pool(x_BxNxD, mask_BxN, pooling: str, mean_over: str = 'tokens'):
  """Pools each sequence into one vector, [B, D].

  `cls` and `first` take position 0, `last` the last true token, `mean` the sum
  over true tokens divided by their number, or by N with `mean_over` positions.
  The mean of a sequence without tokens is 0.
  """
  if pooling in ('cls', 'first'):
    return x_BxNxD[:, 0]
  if pooling == 'last':
    N = mask_BxN.shape[1]
    last_B = jnp.max(jnp.where(mask_BxN, jnp.arange(N)[None], 0), axis=1)
    return jnp.take_along_axis(x_BxNxD, last_B[:, None, None], axis=1)[:, 0]
  weight_BxNx1 = mask_BxN[..., None].astype(jnp.float32)
  total_BxD = jnp.sum(x_BxNxD.astype(jnp.float32) * weight_BxNx1, axis=1)
  count = (weight_BxNx1.sum(axis=1) if mean_over == 'tokens'
           else mask_BxN.shape[1])
  return (total_BxD / jnp.maximum(count, 1)).astype(x_BxNxD.dtype)


def join_pair(x_Bx2xD, how: str):
  """Joins the two vectors of a document pair, to [B, 2 D] or [B, 4 D].

  concat, as in Long Range Arena's and SimpleTRON's code: [x1, x2]. nli, as in
  Long Range Arena's paper, section 2.2.3: [x1, x2, x1 * x2, x1 - x2].
  """
  x1_BxD, x2_BxD = x_Bx2xD[:, 0], x_Bx2xD[:, 1]
  parts = [x1_BxD, x2_BxD]
  if how == 'nli':
    parts += [x1_BxD * x2_BxD, x1_BxD - x2_BxD]
  return jnp.concatenate(parts, axis=-1)


class ClassifierHead(nn.Module):
  """Computes class scores from encoded positions; the last layer is float32.

  Attributes:
    hidden: widths of the hidden layers, each with a ReLU.
    pooler: whether tanh(W x + b) of width D, then dropout, comes before the
      scores (Devlin et al. 2018, arXiv 1810.04805, released code).
  """
  num_classes: int
  hidden: tuple[int, ...]
  pooling: str
  mean_over: str
  pair: str
  dtype: jnp.dtype
  pooler: bool = False
  dropout: float = 0.0

  @nn.compact
  def __call__(self, x_RxNxD, mask_RxN, *, pairs: bool, train: bool = False):
    """Returns float32 [B, C] for encoded sequences and their masks.

    R is B, or 2 B if `pairs`: sequences 2 i and 2 i + 1 are one example.
    """
    x = pool(x_RxNxD, mask_RxN, self.pooling, self.mean_over)
    if self.pooler:
      x = jnp.tanh(nn.Dense(x.shape[-1], dtype=self.dtype, name='pooler')(x))
      x = Dropout(self.dropout)(x, deterministic=not train)
    if pairs:
      x = join_pair(x.reshape(-1, 2, x.shape[-1]), self.pair)
    for i, width in enumerate(self.hidden):
      x = nn.relu(nn.Dense(width, dtype=self.dtype, name=f'hidden_{i}')(x))
    return nn.Dense(self.num_classes, dtype=jnp.float32, name='logits')(x)


class Classifier(nn.Module):
  """Maps sequences or pairs to class scores.

  A decoder maps [R, L, D] to scores of each token, for a second loss.
  """
  encoder: Encoder
  head: ClassifierHead
  decoder: nn.Module | None = None

  def __call__(self, inputs, *, train: bool):
    """Returns float32 [B, C] for ids [B, L] or pairs of them [B, 2, L].

    Continuous values have one more axis, float [B, L, V] or [B, 2, L, V]. In
    training with a decoder, it returns also the scores of each token, float32
    [B, L, V] (pairs: [B, 2, L, V]).
    """
    lead = 1 if jnp.issubdtype(inputs.dtype, jnp.integer) else 2
    pairs = inputs.ndim == lead + 2
    flat = inputs.reshape(-1, *inputs.shape[-lead:])
    x_RxNxD, mask_RxN = self.encoder(flat, train=train)
    classes = self.head(x_RxNxD, mask_RxN, pairs=pairs, train=train)
    if self.decoder is None or not (train or self.is_initializing()):
      return classes
    tokens = self.decoder(x_RxNxD[:, -flat.shape[1]:])
    return (classes, tokens.reshape(
        *inputs.shape[:inputs.ndim - lead + 1], -1)) if train else classes


class TokenClassifier(nn.Module):
  """Maps sequences to class scores of each token, by one layer in float32."""
  encoder: Encoder
  num_classes: int

  @nn.compact
  def __call__(self, inputs, *, train: bool):
    """Returns float32 [..., L, C] for ids [..., L], without a CLS token."""
    length = inputs.shape[-1]
    x_RxNxD, _ = self.encoder(inputs.reshape(-1, length), train=train)
    x = x_RxNxD[:, -length:].reshape(*inputs.shape, -1)
    return nn.Dense(self.num_classes, dtype=jnp.float32, name='logits')(x)


class TokenDecoder(nn.Module):
  """Maps sequences to class scores of each token, through one vector.

  The decoder of MAD's compression task (Poli et al. 2024, arXiv 2403.17844, and
  the released code), for the encoding x of the last token and the sinusoidal
  position p_t of token t:

    z = gelu(W_0 norm(x + p_t)),  z' = gelu(W_1 norm(z)),  scores = W norm(z')

  Norms are of the encoder's kind, or LayerNorm if that is a batch norm or none.
  All layers compute in float32.
  """
  encoder: Encoder
  num_classes: int

  @nn.compact
  def __call__(self, inputs, *, train: bool):
    """Returns float32 [B, L, C] for ids [B, L]."""
    x_BxLxD, mask_BxL = self.encoder(inputs, train=train)
    x_BxD = pool(x_BxLxD, mask_BxL, 'last').astype(jnp.float32)
    width, kind = x_BxD.shape[-1], self.encoder.norm
    kind = kind if kind in ('layer', 'scale', 'rms') else 'layer'

    def norm(name, x):
      return norms.make(kind, jnp.float32, name, mask_BxL, train=train)(x)

    x_BxLxD = x_BxD[:, None] + sinusoidal_positions(
        inputs.shape[1], width)[None]
    for i in range(2):
      x_BxLxD = nn.gelu(nn.Dense(width, name=f'hidden_{i}')(
          norm(f'norm_{i}', x_BxLxD)))
    return nn.Dense(self.num_classes, name='logits')(norm('norm_2', x_BxLxD))
