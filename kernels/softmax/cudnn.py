"""Softmax attention by cuDNN, through `jax.nn.dot_product_attention`.

cuDNN takes lengths, not masks: the keys of a sequence must come first, padding
behind them.
"""

import jax
import jax.numpy as jnp

from kernels import dispatch


def supported(shape, dtype, value_width=None, dropout_rate=0.0):
  """Raises NotImplementedError for what `attend` cannot take."""
  if dropout_rate:
    raise NotImplementedError(
      "kernel='cudnn' keeps no attention weights to drop: use kernel='dense' "
      'or a dropout rate of 0'
    )
  obstacle = _obstacle(shape[-1], value_width or shape[-1], dtype)
  if obstacle:
    raise NotImplementedError(
      f"kernel='cudnn' needs {obstacle}: use kernel='auto' or 'chunked'"
    )


def attend(q, k, v, mask, *, scale):
  """[B, L, H, Dv]; see `api.softmax_attention`."""
  if mask is None:
    return jax.nn.dot_product_attention(
      q, k, v, scale=scale, implementation='cudnn'
    )
  lengths_B = mask.sum(1, dtype=jnp.int32)
  out = jax.nn.dot_product_attention(
    q,
    k,
    v,
    scale=scale,
    key_value_seq_lengths=jnp.maximum(lengths_B, 1),
    implementation='cudnn',
  )
  return jnp.where((lengths_B > 0)[:, None, None, None], out, 0)


def _obstacle(head_width, value_width, dtype):
  """What cuDNN's attention lacks here, or '' where it applies."""
  if dispatch.platform() != 'gpu' or not dispatch.target_is_local():
    return 'an NVIDIA GPU'
  capability = getattr(jax.local_devices()[0], 'compute_capability', '')
  if not capability or float(capability) < 8:
    return 'an NVIDIA GPU of compute capability 8.0 or later'
  if jnp.dtype(dtype) not in (jnp.bfloat16, jnp.float16):
    return f'a 16-bit dtype, not {jnp.dtype(dtype).name}'
  widest = 256 if float(capability) >= 9 else 128
  if head_width % 8 or head_width > widest:
    return f'a head width divisible by 8 and at most {widest}'
  if value_width != head_width:
    return 'values as wide as the keys'
  return ''
