"""What all models share: embedding, blocks, pooling.

Pre-LN Transformer encoder of Long Range Arena (Tay et al. 2020,
arXiv 2011.04006, released code) and SimpleTRON (Yorsh et al. 2021,
arXiv 2111.15588, appendix A), with the mixer as its only variable part.
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

POOLING = ('cls', 'mean', 'first', 'last')
POSITIONS = ('learned', 'sinusoidal')


def sinusoidal_positions(length: int, width: int) -> np.ndarray:
  """Sines, then cosines (Vaswani et al. 2017, section 3.5), float32 [L, D]."""
  half = width // 2
  rate = np.exp(-np.log(10_000.0) * np.arange(half) / max(half - 1, 1))
  angle = np.arange(length)[:, None] * rate
  table = np.concatenate([np.sin(angle), np.cos(angle)], axis=-1)
  return np.pad(table, ((0, 0), (0, width - 2 * half))).astype(np.float32)


def pool(x_BxLxD, mask_BxL, pooling: str):
  """One vector of a sequence, [B, D].

  Args:
    x_BxLxD: the encoder's output.
    mask_BxL: bool, True at tokens.
    pooling: `cls` and `first` take position 0, `last` the last true token,
      `mean` the average over true tokens (zeros where there is none).
  """
  if pooling in ('cls', 'first'):
    return x_BxLxD[:, 0]
  if pooling == 'last':
    L = mask_BxL.shape[1]
    last_B = jnp.max(jnp.where(mask_BxL, jnp.arange(L), 0), axis=1)
    return jnp.take_along_axis(x_BxLxD, last_B[:, None, None], axis=1)[:, 0]
  weight = mask_BxL[..., None].astype(jnp.float32)
  total = jnp.sum(x_BxLxD.astype(jnp.float32) * weight, axis=1)
  return (total / jnp.maximum(weight.sum(axis=1), 1)).astype(x_BxLxD.dtype)


class Mlp(nn.Module):
  """Dense, GELU, Dense, with dropout after each."""
  width: int
  dropout: float
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x, *, train: bool):
    y = nn.gelu(nn.Dense(self.width, dtype=self.dtype)(x))
    y = nn.Dropout(self.dropout)(y, deterministic=not train)
    y = nn.Dense(x.shape[-1], dtype=self.dtype)(y)
    return nn.Dropout(self.dropout)(y, deterministic=not train)


class Block(nn.Module):
  """x + mixer(norm(x)), then x + mlp(norm(x)); x: [B, L, D]."""
  mixer: Callable[..., nn.Module]
  mlp_width: int
  dropout: float
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x, mask, train: bool):
    y = nn.LayerNorm(dtype=self.dtype)(x)
    y = self.mixer(dtype=self.dtype, name='mixer')(y, mask, train=train)
    x = x + nn.Dropout(self.dropout)(y, deterministic=not train)
    y = nn.LayerNorm(dtype=self.dtype)(x)
    return x + Mlp(self.mlp_width, self.dropout, self.dtype, name='mlp')(
        y, train=train)


class Encoder(nn.Module):
  """Token ids to one vector per sequence.

  Attributes:
    block: makes a block, given `mixer`, `mlp_width`, `dropout` and `dtype`.
    mixer: makes a mixer, given `dtype` and `name`.
    vocab_size: number of ids; id 0 is padding.
    mask_padding: whether mixers are told which tokens are padding.
    dtype: computing dtype; parameters are float32.
    The others are the fields of `config.encoder`.
  """
  block: Callable[..., nn.Module]
  mixer: Callable[..., nn.Module]
  vocab_size: int
  num_layers: int
  width: int
  mlp_width: int
  dropout: float
  pooling: str
  positions: str
  cls_has_position: bool
  embedding_std: float
  remat: bool
  mask_padding: bool
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, tokens_BxL, *, train: bool):
    """Returns [B, D] in `dtype` from integer ids [B, L]."""
    x, mask = self._embed(tokens_BxL)
    x = nn.Dropout(self.dropout)(x, deterministic=not train)
    block = nn.remat(self.block, static_argnums=(3,)) if self.remat else (
        self.block)
    attend = mask if self.mask_padding else jnp.ones_like(mask)
    for i in range(self.num_layers):
      x = block(
          mixer=self.mixer, mlp_width=self.mlp_width, dropout=self.dropout,
          dtype=self.dtype, name=f'block_{i}')(x, attend, train)
    x = nn.LayerNorm(dtype=self.dtype, name='norm')(x)
    return pool(x, mask, self.pooling)

  def _embed(self, tokens_BxL):
    x = nn.Embed(
        self.vocab_size, self.width, dtype=self.dtype, name='embedding',
        embedding_init=nn.initializers.normal(self.embedding_std))(tokens_BxL)
    mask = tokens_BxL > 0
    cls = self.pooling == 'cls'
    if cls and self.cls_has_position:
      x, mask = self._prepend_cls(x, mask)
    x = x + self._positions(x.shape[1])
    if cls and not self.cls_has_position:
      x, mask = self._prepend_cls(x, mask)
    return x, mask

  def _prepend_cls(self, x, mask):
    # Zero queries would keep a CLS token without a position from seeing
    # anything through attention without softmax.
    init = (nn.initializers.zeros if self.cls_has_position
            else nn.initializers.normal(self.embedding_std))
    cls_D = self.param('cls', init, (self.width,))
    cls = jnp.broadcast_to(
        cls_D.astype(x.dtype), (x.shape[0], 1, self.width))
    mask_cls = jnp.ones((x.shape[0], 1), bool)
    return (jnp.concatenate([cls, x], axis=1),
            jnp.concatenate([mask_cls, mask], axis=1))

  def _positions(self, length):
    if self.positions == 'sinusoidal':
      table = jnp.asarray(sinusoidal_positions(length, self.width))
    else:
      table = self.param(
          'positions', nn.initializers.zeros, (length, self.width))
    return table.astype(self.dtype)
