"""Mixers: what the encoder asks of them, and the forms that many of them share.

A mixer maps x [B, L, D] and a mask [B, L], True at tokens, to [B, L, D]. Values
of x at padding must not change the output at tokens. `train` turns dropout and
other noise on. The encoder sets the fields in `lra.models.GIVEN`.

`HeadMixer` is the general form with heads: project, mix the heads, merge them.
`LinearMixer` calls a linear operation of `lra.kernels`; the others attend.

Shapes: B batch, L length, D model width, H heads, Dh head width.
"""

import dataclasses
import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.core.errors import UserError, choose
from lra.nn import draws, layers
from lra.schema import fields


@dataclasses.dataclass(frozen=True)
class MixerTraits:
  """Properties of a mixer that the encoder, blocks and objectives need.

  Attributes:
    causal: a token sees only itself and earlier ones.
    alternates: the mixer is causal, and the encoder reverses the tokens in
      every second layer.
    gates_residual: the encoder also passes `residual`, the value of x before
      the norm, and adds the result without dropout.
    shares_values: the encoder also passes `values` and `share=True`, and the
      mixer returns (y, values). `values` come from the block before; they are
      () in the first one.
    shared: a Flax module, which the encoder calls once for all layers, as
      `shared(number of layers)(D)`. Each mixer gets the result as `shared`.
    splits_sequences: the mixer needs only sums over other tokens, so several
      devices may share the tokens of a sequence.
    ordered: the output depends on the order of the tokens, as of a recurrence,
      a convolution or rotated keys. `encoder.positions='needed'` adds none.
  """
  causal: bool = False
  alternates: bool = False
  gates_residual: bool = False
  shares_values: bool = False
  shared: type[nn.Module] | None = None
  splits_sequences: bool = False
  ordered: bool = False

  def but(self, **changes) -> 'MixerTraits':
    """Returns these traits with some changed."""
    return dataclasses.replace(self, **changes)


def traits_of(mixer: nn.Module) -> MixerTraits:
  """Returns `mixer.traits`; the defaults for a module that declares none."""
  return getattr(mixer, 'traits', MixerTraits())


class BaseMixer(nn.Module):
  """Checks the choices of its fields, and that its kernel can run.

  A subclass may declare further fields:

    kernel: 'auto' or a name in `ABOUT.kernels`; needs `op`.
    layer, num_layers: index of the layer, from 0, and number of layers.
    full_length: L of sequences before padding is cut off, for parameters that
      depend on it; None if nothing is cut.
    dropout, tie_dropout: those of the encoder, which sets them.
  """
  dtype: jnp.dtype = jnp.float32

  traits = MixerTraits()  # or a property, if fields decide
  op = ''  # operation of `lra.kernels` that the mixer calls, if any

  def __post_init__(self):
    super().__post_init__()
    for field in dataclasses.fields(self):
      value, choices = getattr(self, field.name), field.metadata.get('choices')
      if choices and value not in choices:
        raise UserError(
            f'config.model.{field.name}={value!r} is not possible: '
            f'{choose(value, choices)}')

  def kernel_call(self, length: int, width: int) -> dict:
    """Returns shape, dtype and needs of `op`; see `lra.kernels.resolve`."""
    raise NotImplementedError

  def kernel_for(self, length: int, width: int) -> str:
    """Returns the kernel that runs for x [B, length, width], or refuses it."""
    if not self.op:
      return 'xla'
    known = 'auto', *kernels.OPS[self.op]
    if self.kernel not in known:
      raise UserError(f'config.model.kernel={self.kernel} is not possible: '
                      f'{choose(self.kernel, known)}')
    try:
      return kernels.resolve(
          self.op, self.kernel, **self.kernel_call(length, width))
    except (NotImplementedError, ValueError) as e:
      raise UserError(
          f'config.model.kernel={self.kernel} is not possible: {e}.') from e


class HeadMixer(BaseMixer):
  """Projects to queries, keys and values, mixes heads, projects the output.

  A subclass defines `mix`; it may override `project` or `merge` if its first
  or last step differs. All three may create parameters.
  """
  num_heads: int = 8
  qkv_width: int = 512
  qkv_bias: bool = fields.argument(
      True, 'Whether the input projections have biases; the LRA release has '
      'none.')
  full_length: int | None = None

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    """Mixes the heads: returns [B, L, H, Dh]; all have the computing dtype."""
    raise NotImplementedError

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train: bool) -> jax.Array:
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    o_BxLxHxDh = self.mix(*self.project(x_BxLxD), mask_BxL, train=train)
    return self.merge(o_BxLxHxDh, x_BxLxD)

  def project(self, x_BxLxD) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns queries, keys and values, each [B, L, H, Dh]."""
    return tuple(self.heads(x_BxLxD, name) for name in layers.QKV)

  def heads(self, x_BxLxD, name: str, count: int = 0) -> jax.Array:
    """Projects to heads of width Dh, [B, L, count, Dh]; 0 means H heads."""
    count = count or self.num_heads
    return layers.project_heads(x_BxLxD, count, count * self.head_width,
                                self.dtype, name, self.qkv_bias)

  def merge(self, o_BxLxHxDh, x_BxLxD) -> jax.Array:
    """Applies the output projection to the mixed heads: [B, L, D]."""
    return layers.merge_heads_and_project(
        o_BxLxHxDh, x_BxLxD.shape[-1], self.dtype)

  @property
  def head_width(self) -> int:
    """Dh. Raises a UserError if num_heads does not divide the width."""
    return layers.head_width(self.qkv_width, self.num_heads)

  def kv_size(self, count: int) -> int:
    """Returns how many numbers the keys and values of `count` tokens hold."""
    return 2 * self.qkv_width * count

  def kernel_call(self, length, width):
    return {'shape': (1, length, self.num_heads, self.head_width),
            'dtype': self.dtype}


class AttentionMixer(HeadMixer):
  """A mixer whose state is the keys and values of all tokens."""

  def state_size(self, width: int, length: int) -> int:
    return self.kv_size(length)


class SoftmaxMixer(AttentionMixer):
  """Softmax attention. A sequence whose mask is all False reads no values."""
  kernel: str = 'auto'

  op = 'softmax'

  def attend(self, q_BxLxHxDh, k_BxSxGxDh, v_BxSxGxDv, mask_BxS=None):
    """Returns [B, L, H, Dv]; G groups of heads share keys and values."""
    return kernels.sharded(kernels.softmax_attention)(
        q_BxLxHxDh, k_BxSxGxDh, v_BxSxGxDv, mask=mask_BxS, kernel=self.kernel)

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    return self.attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL)


class BiasedMixer(AttentionMixer):
  """Softmax attention with a bias of the logits and dropout of the weights.

  The class attribute `kernel` is 'auto'; a subclass may make it a field.
  """
  attention_dropout: float = fields.argument(
      0.0, 'Dropout rate of attention weights. Only the kernels `dense` and '
      "`chunked` support it; 'auto' then takes `chunked`.", low=0, below=1)

  kernel = 'auto'

  def bias(self, length: int) -> jax.Array | None:
    """Returns a bias by head and distance, float32 [H, 2 L - 1], or None."""

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    rate = self.attention_dropout
    drop = {'dropout_rate': rate,
            'dropout_key': draws.row_keys(self, len(q_BxLxHxDh))} if (
                rate and train) else {}
    # Evaluation uses the training kernel too, although it drops no weights.
    return kernels.sharded(kernels.softmax_attention)(
        q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask=mask_BxL,
        bias=self.bias(q_BxLxHxDh.shape[1]),
        kernel='chunked' if rate and self.kernel == 'auto' else self.kernel,
        **drop)


class LinearMixer(HeadMixer):
  """Projects, runs one operation of `lra.kernels`, and merges.

  On an accelerator one matmul computes queries, keys and values side by side,
  and the kernel reads them in this layout. On a CPU three matmuls are faster.
  A subclass sets `op`, and `operations` to two functions: one of q, k and v,
  one of packed qkv.
  """
  kernel: str = 'auto'

  traits = MixerTraits(splits_sequences=True)
  # Whether the output is divided by q . sum_j k_j.
  normalised = False

  def state_size(self, width: int) -> int:
    """Returns how many numbers K^T V and the sums of keys hold in all heads."""
    return self.qkv_width * (self.head_width + self.normalised)

  def options(self) -> dict:
    """Returns further keyword arguments of the operation."""
    return {}

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    if self.kernel_for(*x_BxLxD.shape[1:]) == 'xla':
      return super().__call__(x_BxLxD, mask_BxL, train=train)
    qkv_BxLx3xHxDh, bias = layers.project_packed(
        x_BxLxD, self.num_heads, self.qkv_width, self.dtype, self.qkv_bias)
    o_BxLxHxDh = self.attend(qkv_BxLx3xHxDh, mask=mask_BxL, bias=bias)
    return self.merge(o_BxLxHxDh, x_BxLxD)

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    return self.attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask=mask_BxL)

  def attend(self, *operands: jax.Array, **arrays) -> jax.Array:
    """Runs the operation on q, k, v or on packed qkv: [B, L, H, Dh]."""
    apart, packed = self.operations
    return kernels.sharded(packed if len(operands) == 1 else apart)(
        *operands, kernel=self.kernel, **arrays, **self.options())


def state_size(mixer: nn.Module, width: int, length: int) -> int | None:
  """Returns how many numbers one layer keeps from token to token, or None.

  With these numbers and its own input, the output of a token can be computed:
  the state of a recurrence, one matrix for each head of linear attention, the
  keys and values that softmax attention may still read, the inputs under the
  kernel of a convolution. Heads, channels and directions are summed, and a
  complex number counts as two. A sum over all tokens serves both directions.

  A mixer has a method `state_size(width)`, or `state_size(width, length)` if
  its state depends on the length, CLS included; else the result is None.
  """
  method = getattr(mixer, 'state_size', None)
  if method is None:
    return None
  grows = 'length' in inspect.signature(method).parameters
  size = method(width, length) if grows else method(width)
  if size is not None and (type(size) is not int or size < 0):
    raise UserError(
        f'{type(mixer).__module__}: state_size returns {size!r}: return the '
        'number of numbers kept, an int, or None.')
  return size
