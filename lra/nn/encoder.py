"""The encoder that all models share: embedding, positions and blocks.

Pre-LN Transformer encoder of Long Range Arena (Tay et al. 2020,
arXiv 2011.04006, released code) and SimpleTRON (Yorsh et al. 2021,
arXiv 2111.15588, appendix A), with options that published recipes need.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra import kernels
from lra.core.errors import UserError
from lra.kernels.meshes import SEQUENCE_AXIS
from lra.nn import norm as norms
from lra.nn.convolution import PlainConvolution
from lra.nn.dropout import Dropout
from lra.nn.embedding import Embedding
from lra.nn.mixer import traits_of
from lra.nn.mlp import Mlp
from lra.schema.fields import PATCH

MIXER_STD = 'mixer_std'  # a collection, see `deviation`
ROWS = 8  # rows of a matmul should be a multiple of this; see `filling`


def sinusoidal_positions(length: int, width: int) -> np.ndarray:
  """Returns sin and cos of p / 10000^(2i / D) for position p, float32 [L, D].

  Source: Vaswani et al. 2017, section 3.5, with all sines before all cosines as
  in Long Range Arena's code. An odd width ends with a sine.
  """
  rate = 10_000.0 ** (-np.arange(0, width, 2) / width)
  angle = np.arange(length)[:, None] * rate
  table = np.concatenate([np.sin(angle), np.cos(angle)], axis=-1)
  return table[:, :width].astype(np.float32)


def patches(ids_BxL: jax.Array) -> jax.Array:
  """Returns the pixels of each patch, [B, L / 16, 16], row by row.

  Source: Dosovitskiy et al. 2020, arXiv 2010.11929, section 3.1. L pixels are a
  square image whose side is a multiple of `PATCH`.
  """
  side = math.isqrt(ids_BxL.shape[1]) // PATCH
  image = ids_BxL.reshape(-1, side, PATCH, side, PATCH)
  return image.swapaxes(2, 3).reshape(-1, side**2, PATCH**2)


def filling(batch: int, length: int) -> int:
  """Returns how many masked tokens to append so that a GPU copies nothing."""
  # cuBLASLt needs a number of rows, B * N, that is a multiple of 8. Otherwise
  # XLA copies the operand in each matmul, for example with a CLS token.
  mesh = jax.sharding.get_abstract_mesh()
  split = not mesh.empty and mesh.shape.get(SEQUENCE_AXIS, 1) > 1
  if kernels.platform() != 'gpu' or split or batch * length % ROWS == 0:
    return 0
  return -length % ROWS


def deviation(x_BxLxD, mask_BxL: jax.Array | None) -> jax.Array:
  """Returns the standard deviation over all channels of unmasked tokens."""
  x_BxLxD = x_BxLxD.astype(jnp.float32)
  where = True if mask_BxL is None else mask_BxL[..., None]
  return jnp.std(x_BxLxD, where=jnp.broadcast_to(where, x_BxLxD.shape))


class Settings(nn.Module):
  """Fields of an encoder that its blocks need too; see `encoder.NAME` in
  `lra.schema.fields`.

  Attributes:
    mixer: creates a mixer, given the fields in `lra.models.GIVEN`.
    full_length: L of uncut sequences, which sets the shapes of parameters;
      None if no input is cut.
    norm_rows: `rows` of `lra.nn.norm.BatchNorm`.
  """
  mixer: Callable[..., nn.Module]
  num_layers: int
  mlp_width: int
  dropout: float
  dtype: jnp.dtype
  full_length: int | None = None
  conv_width: int = 0
  norm: str = 'layer'
  norm_place: str = 'pre'
  norm_momentum: float = 0.9
  norm_rows: int = 0
  norm_eps: float = norms.EPS
  block: str = 'mlp'
  gelu: str = 'tanh'
  tie_dropout: bool = False


def _norm_maker(settings: Settings, mask_BxL, train: bool) -> Callable:
  # No method: Flax would capture what it returns as an intermediate value.
  return functools.partial(
      norms.make, settings.norm, settings.dtype, mask_BxL=mask_BxL, train=train,
      momentum=settings.norm_momentum, rows=settings.norm_rows,
      eps=settings.norm_eps)


class Block(Settings, kw_only=True):
  """Computes x + mixer(norm(x)), then x + mlp(norm(x)).

  With `norm_place` post it normalises the sums instead: norm(x + mixer(x)).
  The mixer's `MixerTraits` may change the first step. `layer` counts from 0,
  and `full_length` includes CLS.
  """
  layer: int

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, train: bool, tokens_BxL, shared=None,
               values: tuple = ()):
    """Returns (x, values); values are () if the mixer shares none."""
    norm = _norm_maker(self, tokens_BxL, train)
    x_BxLxD, y_BxLxD = self._before(norm, 'norm_mixer', x_BxLxD)
    mixer = self.mixer(
        dtype=self.dtype, layer=self.layer, num_layers=self.num_layers,
        full_length=self.full_length, dropout=self.dropout,
        **({'tie_dropout': True} if self.tie_dropout else {}), name='mixer')
    traits = traits_of(mixer)
    turn = (functools.partial(jnp.flip, axis=1)
            if traits.alternates and self.layer % 2 else lambda y: y)
    y_BxLxD = turn(y_BxLxD)
    if self.conv_width:
      y_BxLxD = PlainConvolution(self.conv_width, name='conv')(y_BxLxD)
    more = {'residual': turn(x_BxLxD)} if traits.gates_residual else {}
    if shared is not None:
      more['shared'] = shared
    mix = functools.partial(
        mixer, y_BxLxD, turn(mask_BxL), train=train, **more)
    if traits.shares_values:
      y_BxLxD, values = mix(values=tuple(map(turn, values)), share=True)
      values = tuple(map(turn, values))
    else:
      y_BxLxD = mix()
    y_BxLxD = turn(y_BxLxD)
    if jnp.shape(y_BxLxD) != x_BxLxD.shape:
      raise UserError(
          f'The mixer of {type(mixer).__module__} returns shape '
          f'{list(jnp.shape(y_BxLxD))} for x {list(x_BxLxD.shape)}: let its '
          '__call__ return the shape of x.')
    if self.is_mutable_collection(MIXER_STD) and not self.is_initializing():
      self.sow(MIXER_STD, 'std', deviation(y_BxLxD, tokens_BxL))
    if not traits.gates_residual:
      y_BxLxD = Dropout(self.dropout, tied=self.tie_dropout)(
          y_BxLxD, deterministic=not train)
    x_BxLxD = self._after(norm, 'norm_mixer', x_BxLxD + y_BxLxD)
    if self.block == 'none':
      return x_BxLxD, values
    x_BxLxD, y_BxLxD = self._before(norm, 'norm_mlp', x_BxLxD)
    mlp = Mlp(self.mlp_width, self.dropout, self.dtype, self.block == 'glu',
              self.tie_dropout, self.gelu == 'exact', name='mlp')
    x_BxLxD = x_BxLxD + mlp(y_BxLxD, train=train)
    return self._after(norm, 'norm_mlp', x_BxLxD), values

  def _before(self, norm, name, x_BxLxD):
    """Returns x for the residual sum, and its norm if norms come before."""
    if self.norm_place != 'pre':
      return x_BxLxD, x_BxLxD
    return norm(name)(x_BxLxD, beside=True)

  def _after(self, norm, name, x_BxLxD):
    return norm(name)(x_BxLxD) if self.norm_place == 'post' else x_BxLxD


class Encoder(Settings, kw_only=True):
  """Maps token ids or continuous values to one vector per position.

  Weight transfer relies on the names of the parameters: `embedding`, `cls`,
  `positions`, `token_types`, `norm_embedding`, `mixer` (those that the mixers
  of all blocks share), `block_<i>/norm_mixer`, `block_<i>/conv`,
  `block_<i>/mixer`, `block_<i>/norm_mlp`, `block_<i>/mlp/up`,
  `block_<i>/mlp/down` and `norm`.

  Attributes:
    vocab_size: number of ids; id 0 is padding.
    prepend_cls: whether a learned CLS token comes before the sequence.
    mask_padding: whether mixers receive the padding mask.
    hides: whether an id below 0 is a hidden token, whose embedding is 0.
    Others: see `encoder.NAME` in `lra.schema.fields`.
  """
  vocab_size: int
  width: int
  positions: str
  prepend_cls: bool
  cls_has_position: bool
  embedding_std: float
  remat: bool
  mask_padding: bool
  norm_embedding: bool = False
  max_positions: int = 0
  token_types: int = 0
  inputs: str = 'ids'
  hides: bool = False

  @nn.compact
  def __call__(self, inputs, mask_BxL=None, *, train: bool):
    """Returns (vectors [B, N, D] in `dtype`, mask bool [B, N]).

    N is L, or L + 1 with a CLS token at position 0. Inputs are integer ids
    [B, L], or continuous values, float [B, L, V]. By default every id but 0 is
    a token, and every position of continuous values.
    """
    if self.inputs == 'patches':
      inputs = patches(inputs)
      mask_BxL = jnp.any(inputs != 0, axis=-1)
    if mask_BxL is None:
      mask_BxL = (inputs != 0 if inputs.ndim == 2
                  else jnp.ones(inputs.shape[:2], bool))
    x_BxLxD = self._embed(jnp.maximum(inputs, 0) if self.hides else inputs)
    if self.hides:
      x_BxLxD = jnp.where(inputs[..., None] < 0, 0, x_BxLxD)
    x_BxNxD, mask_BxN = self._with_positions(
        x_BxLxD, mask_BxL, self._full(inputs))
    norm = _norm_maker(self, mask_BxN, train)
    if self.norm_embedding:
      x_BxNxD = norm('norm_embedding')(x_BxNxD)
    x_BxNxD = Dropout(self.dropout, tied=self.tie_dropout)(
        x_BxNxD, deterministic=not train)
    block = nn.remat(Block, static_argnums=(3,)) if self.remat else Block
    seen_BxN = mask_BxN if self.mask_padding else jnp.ones_like(mask_BxN)
    length, tokens_BxN = x_BxNxD.shape[1], mask_BxN
    more = filling(*x_BxNxD.shape[:2])
    traits = traits_of(self._mixer_alone())
    # Masked tokens at the end do not change sums over tokens.
    if more and traits.splits_sequences:
      x_BxNxD = jnp.pad(x_BxNxD, ((0, 0), (0, more), (0, 0)))
      seen_BxN, tokens_BxN = (
          jnp.pad(m, ((0, 0), (0, more))) for m in (seen_BxN, tokens_BxN))
    shared, values = None, ()
    if traits.shared is not None:
      shared = traits.shared(self.num_layers, name='mixer')(self.width)
    settings = {field.name: getattr(self, field.name)
                for field in dataclasses.fields(Settings)
                if field.name not in ('parent', 'name')}
    settings['full_length'] = self._full(inputs) + self.prepend_cls
    for i in range(self.num_layers):
      x_BxNxD, values = block(layer=i, **settings, name=f'block_{i}')(
          x_BxNxD, seen_BxN, train, tokens_BxN, shared, values)
    x_BxNxD = x_BxNxD[:, :length]
    if self.norm_place == 'pre':
      x_BxNxD = norm('norm')(x_BxNxD)
    return x_BxNxD, mask_BxN

  @nn.nowrap
  def _mixer_alone(self):
    return self.mixer(
        dtype=self.dtype, layer=0, num_layers=self.num_layers,
        full_length=self.full_length, dropout=self.dropout, name=None,
        parent=None)

  def _embed(self, inputs):
    init = nn.initializers.normal(self.embedding_std)
    if self.inputs != 'ids' and jnp.issubdtype(inputs.dtype, jnp.integer):
      grey = (inputs.astype(jnp.float32) - 1) / (self.vocab_size - 2)
      grey = 2 * grey - 1
      inputs = grey if self.inputs == 'patches' else grey[..., None]
    if inputs.ndim == 2:
      return Embedding(self.vocab_size, self.width, dtype=self.dtype,
                       embedding_init=init, name='embedding')(inputs)
    return nn.Dense(self.width, dtype=self.dtype, name='embedding')(inputs)

  def _full(self, inputs):
    return self.full_length or inputs.shape[1]

  def _with_positions(self, x_BxLxD, mask_BxL, full_length):
    first, after = (self.prepend_cls and self.cls_has_position,
                    self.prepend_cls and not self.cls_has_position)
    if first:
      x_BxLxD, mask_BxL = self._prepend_cls(x_BxLxD, mask_BxL)
    none = self.positions == 'none' or (
        self.positions == 'needed' and traits_of(self._mixer_alone()).ordered)
    if not none:
      table_LxD = self._positions(full_length + first)
      x_BxLxD = x_BxLxD + table_LxD[None, :x_BxLxD.shape[1]]
    if after:
      x_BxLxD, mask_BxL = self._prepend_cls(x_BxLxD, mask_BxL)
    if self.token_types:
      types_TxD = self.param(
          'token_types', nn.initializers.normal(self.embedding_std),
          (self.token_types, self.width))
      x_BxLxD += types_TxD[0].astype(x_BxLxD.dtype)[None, None]
    return x_BxLxD, mask_BxL

  def _prepend_cls(self, x_BxLxD, mask_BxL):
    # Without softmax, a zero query sees nothing, so a CLS token without a
    # position must not start at zero.
    init = (nn.initializers.zeros if self.cls_has_position
            else nn.initializers.normal(self.embedding_std))
    cls_D = self.param('cls', init, (self.width,))
    batch = len(x_BxLxD)
    cls_Bx1xD = jnp.broadcast_to(
        cls_D.astype(x_BxLxD.dtype), (batch, 1, self.width))
    return (jnp.concatenate([cls_Bx1xD, x_BxLxD], axis=1),
            jnp.concatenate([jnp.ones((batch, 1), bool), mask_BxL], axis=1))

  def _positions(self, length):
    if 0 < self.max_positions < length:
      raise UserError(
          f'config.encoder.max_positions={self.max_positions} is less than the '
          f'{length} positions of a sequence: choose a smaller config.seq_len.')
    if self.positions != 'learned':
      table_LxD = jnp.asarray(sinusoidal_positions(length, self.width))
    else:
      table_LxD = self.param(
          'positions', nn.initializers.zeros,
          (self.max_positions or length, self.width))
    return table_LxD.astype(self.dtype)
