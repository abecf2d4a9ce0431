"""Softmax attention by one of three kernels, picked by name.

`dense` keeps the weights [B, H, L, S] and is the only one that can drop
them out. `chunked` never forms them (see `lra.models.chunked`): memory linear
in the length on any device. `cudnn` is `jax.nn.dot_product_attention` on an
NVIDIA GPU. `auto` takes cudnn where it applies, else chunked (on a CPU faster
than dense at every length from 128 on), and dense only for dropout.

Shapes: B batch, L queries, S keys, H heads, Dh key width, Dv value width.
"""

import jax
import jax.numpy as jnp

from lra.errors import UserError
from lra.models.chunked import chunked_attention

KERNELS = ('dense', 'chunked', 'cudnn')

def choose(kernel: str, *, head_width: int, dtype: jnp.dtype,
           value_width: int | None = None,
           attention_dropout: float = 0.0) -> str:
  """Returns the name of the kernel that will run on the default backend.

  Args:
    kernel: 'auto' or one of `KERNELS`; a named one is strict.
    head_width: Dh, the width of the queries and keys of one head.
    dtype: computing dtype.
    value_width: Dv where it is not Dh.
    attention_dropout: rate at which attention weights are dropped.

  Raises:
    UserError: no such kernel, or the named one cannot do it.
  """
  if kernel not in ('auto', *KERNELS):
    raise UserError(f'Unknown config.model.kernel {kernel!r}: choose auto, '
                    f'{", ".join(KERNELS)}.')
  if attention_dropout > 0:
    if kernel not in ('auto', 'dense'):
      raise UserError(
          f'config.model.kernel={kernel!r} keeps no attention weights to drop: '
          'use kernel=dense or set config.model.attention_dropout=0.')
    return 'dense'
  obstacle = _cudnn_obstacle(head_width, value_width or head_width, dtype)
  if kernel == 'cudnn' and obstacle:
    raise UserError(f'config.model.kernel=cudnn needs {obstacle}: use '
                    'kernel=auto or chunked.')
  if kernel != 'auto':
    return kernel
  return 'chunked' if obstacle else 'cudnn'


def attend(q_BxLxHxDh: jax.Array, k_BxSxHxDh: jax.Array,
           v_BxSxHxDv: jax.Array, mask_BxS: jax.Array | None = None, *,
           scale: float | None = None, kernel: str = 'auto') -> jax.Array:
  """softmax(scale Q K^T) V per head over the keys that `mask` admits.

  Args:
    q_BxLxHxDh, k_BxSxHxDh, v_BxSxHxDv: one dtype; statistics and sums are
      float32 whatever it is.
    mask_BxS: True = key takes part. A sequence without any key gives zeros.
      cuDNN takes lengths, so there the keys must come first: padding trails.
    scale: Dh**-0.5 unless given.
    kernel: see `choose`.

  Returns:
    [B, L, H, Dv] in the dtype of `v`.

  Raises:
    UserError: see `choose`.
  """
  kernel = choose(kernel, dtype=q_BxLxHxDh.dtype,
                  head_width=k_BxSxHxDh.shape[-1],
                  value_width=v_BxSxHxDv.shape[-1])
  if scale is None:
    scale = q_BxLxHxDh.shape[-1]**-0.5
  if kernel == 'chunked':
    return chunked_attention(q_BxLxHxDh, k_BxSxHxDh, v_BxSxHxDv, mask_BxS,
                             scale=scale)
  if kernel == 'cudnn':
    return _cudnn(q_BxLxHxDh, k_BxSxHxDh, v_BxSxHxDv, mask_BxS, scale)
  weights_BxHxLxS = dense_weights(q_BxLxHxDh, k_BxSxHxDh, mask_BxS,
                                  scale=scale)
  return apply_weights(weights_BxHxLxS, v_BxSxHxDv)


def dense_weights(q_BxLxHxDh: jax.Array, k_BxSxHxDh: jax.Array,
                  mask_BxS: jax.Array | None = None, *,
                  scale: float) -> jax.Array:
  """The attention weights themselves, float32 [B, H, L, S]."""
  logits_BxHxLxS = scale * jnp.einsum(
      'blhd,bshd->bhls', q_BxLxHxDh, k_BxSxHxDh,
      preferred_element_type=jnp.float32)
  return masked_softmax(logits_BxHxLxS, mask_BxS)


def masked_softmax(logits_BxHxLxS: jax.Array,
                   mask_BxS: jax.Array | None) -> jax.Array:
  """Softmax over the admitted keys; zeros where there is none."""
  if mask_BxS is None:
    return jax.nn.softmax(logits_BxHxLxS)
  mask_Bx1x1xS = mask_BxS[:, None, None]
  # jax.nn.softmax(where=...) of an all-false row is NaN in its gradient.
  logits_BxHxLxS = jnp.where(mask_Bx1x1xS, logits_BxHxLxS, -1e30)
  return jnp.where(mask_Bx1x1xS, jax.nn.softmax(logits_BxHxLxS), 0)


def apply_weights(weights_BxHxLxS: jax.Array,
                  v_BxSxHxDv: jax.Array) -> jax.Array:
  """Sums the values by float32 weights: [B, L, H, Dv] in the values' dtype."""
  return jnp.einsum(
      'bhls,bshd->blhd', weights_BxHxLxS.astype(v_BxSxHxDv.dtype), v_BxSxHxDv,
      preferred_element_type=jnp.float32).astype(v_BxSxHxDv.dtype)


def _cudnn(q_BxLxHxDh, k_BxSxHxDh, v_BxSxHxDv, mask_BxS, scale):
  if mask_BxS is None:
    return jax.nn.dot_product_attention(
        q_BxLxHxDh, k_BxSxHxDh, v_BxSxHxDv, scale=scale,
        implementation='cudnn')
  lengths_B = mask_BxS.sum(1, dtype=jnp.int32)
  out_BxLxHxDv = jax.nn.dot_product_attention(
      q_BxLxHxDh, k_BxSxHxDh, v_BxSxHxDv, scale=scale,
      key_value_seq_lengths=jnp.maximum(lengths_B, 1), implementation='cudnn')
  return jnp.where((lengths_B > 0)[:, None, None, None], out_BxLxHxDv, 0)


def _cudnn_obstacle(head_width: int, value_width: int,
                    dtype: jnp.dtype) -> str:
  """What cuDNN's attention lacks here, or '' where it applies."""
  if jax.default_backend() != 'gpu':
    return 'an NVIDIA GPU'
  capability = getattr(jax.local_devices()[0], 'compute_capability', '')
  if not capability or float(capability) < 8:
    return 'an NVIDIA GPU of compute capability 8.0 or later'
  if jnp.dtype(dtype) not in (jnp.bfloat16, jnp.float16):
    return f'a 16-bit config.dtype, not {jnp.dtype(dtype).name}'
  widest = 256 if float(capability) >= 9 else 128
  if head_width % 8 or head_width > widest:
    return f'a head width divisible by 8 and at most {widest}'
  if value_width != head_width:
    return 'values as wide as the keys'
  return ''
