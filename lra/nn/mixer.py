"""The common forms of a mixer: project to heads, mix the heads, merge them.

`HeadMixer` is the general form. `SoftmaxMixer` and `BiasedMixer` attend to all
positions, `LinearMixer` calls a linear operation of `kernels`.

Shapes: B batch, L length, D model width, H heads, Dh head width.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.core.errors import UserError, choose
from lra.nn import draws, layers
from lra.schema import fields


class HeadMixer(nn.Module):
  """Projects to queries, keys and values, mixes heads, projects the output.

  A subclass defines `mix`; it may override `project` or `merge` if its first
  or last step differs. All three may create parameters.

  Attributes:
    num_heads: number of heads, H.
    qkv_width: width of the queries, keys or values of all heads together, H *
      Dh.
    qkv_bias: whether the input projections have biases; the LRA release has
      none.
    dtype: computing dtype; parameters are float32.
    full_length: L of sequences before padding is cut off, for parameters that
      depend on it; None if nothing is cut.
    op: class attribute, the operation of package `kernels` that the mixer
      calls. A mixer that sets it has a field `kernel: str = 'auto'`.

  Raises:
    UserError: num_heads does not divide the width, an attribute has a value
      that is none of its choices, or the kernel is unknown or cannot run here.
      Docstrings of subclasses list only further causes.
  """
  num_heads: int = 8
  qkv_width: int = 512
  qkv_bias: bool = True
  dtype: jnp.dtype = jnp.float32
  full_length: int | None = None

  op = ''
  # Whether tokens may be sharded over devices; true for sums over tokens.
  splits_sequences = False

  def __post_init__(self):
    super().__post_init__()
    check_choices(self)

  def mix(self, q_BxLxHxDh: jax.Array, k_BxLxHxDh: jax.Array,
          v_BxLxHxDh: jax.Array, mask_BxL: jax.Array, *,
          train: bool) -> jax.Array:
    """Mixes the heads: returns [B, L, H, Dh].

    Queries, keys and values have the computing dtype. The mask is True at
    tokens: values at other positions must not change the output at tokens.
    `train` turns dropout and other noise on.
    """
    raise NotImplementedError

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array, mask_BxL: jax.Array, *,
               train: bool) -> jax.Array:
    """Returns [B, L, D] from x [B, L, D] and mask [B, L], True = token."""
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    o_BxLxHxDh = self.mix(*self.project(x_BxLxD), mask_BxL, train=train)
    return self.merge(o_BxLxHxDh, x_BxLxD)

  def project(self, x_BxLxD: jax.Array
              ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns queries, keys and values, each [B, L, H, Dh]."""
    return tuple(self.heads(x_BxLxD, name) for name in layers.QKV)

  def heads(self, x_BxLxD: jax.Array, name: str, count: int = 0) -> jax.Array:
    """Projects to heads of width Dh, [B, L, count, Dh]; 0 means H heads."""
    count = count or self.num_heads
    width = layers.head_width(self.qkv_width, self.num_heads)
    return layers.project_heads(x_BxLxD, count, count * width, self.dtype, name,
                                self.qkv_bias)

  def merge(self, o_BxLxHxDh: jax.Array, x_BxLxD: jax.Array) -> jax.Array:
    """Applies the output projection to the mixed heads: [B, L, D]."""
    return layers.merge_heads_and_project(
        o_BxLxHxDh, x_BxLxD.shape[-1], self.dtype)

  def kv_size(self, count: int) -> int:
    """Returns how many numbers the keys and values of `count` tokens hold."""
    return 2 * self.qkv_width * count

  def kernel_for(self, length: int, width: int, **needs) -> str:
    """Returns the kernel that runs for x [B, length, width].

    A mixer without `op` runs 'xla'. A subclass may add needs; see
    `lra.kernels.resolve`.

    Raises:
      UserError: the kernel is unknown or cannot run here.
    """
    if not self.op:
      return 'xla'
    shape = (1, length, self.num_heads,
             layers.head_width(self.qkv_width, self.num_heads))
    return resolve_kernel(self.op, self.kernel, shape, self.dtype, **needs)


class SoftmaxMixer(HeadMixer):
  """Softmax attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  A sequence whose mask is all False reads no values.

  Attributes: those of `HeadMixer`, and
    kernel: 'auto' or one of `KERNELS`.
  """
  kernel: str = 'auto'

  op = 'softmax'

  def state_size(self, width: int, length: int) -> int:
    """Returns how many numbers the keys and values of all tokens hold."""
    del width
    return self.kv_size(length)

  def attend(self, q_BxLxHxDh, k_BxSxGxDh, v_BxSxGxDv, mask_BxS=None):
    """Returns [B, L, H, Dv]; G groups of heads share keys and values."""
    return kernels.sharded(kernels.softmax_attention)(
        q_BxLxHxDh, k_BxSxGxDh, v_BxSxGxDv, mask=mask_BxS, kernel=self.kernel)

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    return self.attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL)


class BiasedMixer(HeadMixer):
  """Softmax attention with a bias of the logits and dropout of the weights.

  A sequence whose mask is all False reads no values.

  Attributes: those of `HeadMixer`, and
    attention_dropout: dropout rate of attention weights. Only the kernels
      `dense` and `chunked` support it; 'auto' then takes `chunked`.
    kernel: class attribute 'auto'. A subclass may declare it as a field, with
      'auto' or one of `KERNELS`.
  """
  attention_dropout: float = fields.argument(0.0, low=0, below=1)

  kernel = 'auto'

  def state_size(self, width: int, length: int) -> int:
    """Returns how many numbers the keys and values of all tokens hold."""
    del width
    return self.kv_size(length)

  def bias(self, length: int) -> jax.Array | None:
    """Returns a bias by head and distance, float32 [H, 2 L - 1], or None."""
    del length

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
  """Projects, runs one operation of `kernels`, merges: [B, L, D] -> [B, L, D].

  On an accelerator one matmul computes queries, keys and values side by side,
  and the kernel reads them in this layout. On a CPU three matmuls compute them
  separately, which is faster with plain XLA.

  A subclass sets `op` to the name of its operation and may override `options`.
  It sets `operations` to two functions: one of q, k and v, one of packed qkv.

  Attributes: those of `HeadMixer`, and
    kernel: 'auto' or one of `KERNELS`.
  """
  kernel: str = 'auto'

  splits_sequences = True
  # Whether the output is divided by q . sum_j k_j.
  normalised = False

  def state_size(self, width: int) -> int:
    """Returns how many numbers K^T V and the sums of keys hold in all heads."""
    del width
    head = layers.head_width(self.qkv_width, self.num_heads)
    return self.qkv_width * (head + self.normalised)

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


def check_choices(mixer: nn.Module) -> None:
  """Raises a UserError if an attribute's value is none of its choices."""
  for field in dataclasses.fields(mixer):
    value, choices = getattr(mixer, field.name), field.metadata.get('choices')
    if choices and value not in choices:
      raise UserError(
          f'config.model.{field.name}={value!r} is not possible: '
          f'{choose(value, choices)}')


def resolve_kernel(op: str, kernel: str, shape: tuple[int, ...],
                   dtype: jnp.dtype, **needs) -> str:
  """Calls `lra.kernels.resolve`; its errors name `config.model.kernel`.

  Raises:
    UserError: the kernel is unknown or cannot run here.
  """
  known = 'auto', *kernels.OPS[op]
  if kernel not in known:
    raise UserError(f'config.model.kernel={kernel} is not possible: '
                    f'{choose(kernel, known)}')
  try:
    return kernels.resolve(op, kernel, shape, dtype, **needs)
  except (NotImplementedError, ValueError) as e:
    raise UserError(
        f'config.model.kernel={kernel} is not possible: {e}.') from e
