"""Softmax attention by cuDNN, through `jax.nn.dot_product_attention`.

cuDNN can restrict a sequence to its first n keys; any other mask would have to
be a bias [L, S]. A sum over keys does not depend on their order, so unmasked
keys and their values are copied to the front.

The seed of cuDNN's dropout is compiled into the program and cannot change with
every step. So this kernel has no dropout.
"""

import functools
import re

import jax
import jax.numpy as jnp

from lra.kernels import dispatch
from lra.kernels.softmax.distances import refuse


def supported(shape, dtype, value_width=None, dropout_rate=0.0, bias=False):
  """A GPU that is not local is assumed to have compute capability 8.0 or more.
  """
  refuse('cudnn', bias, dropout_rate)
  obstacle = _obstacle(shape[-1], value_width or shape[-1], dtype)
  if obstacle:
    raise NotImplementedError(f"kernel='cudnn' needs {obstacle}: use "
                              "kernel='auto' or 'chunked'")


def forward(inputs, options, save):
  """JAX supports gradients only for even lengths; odd ones get one more row.
  """
  del save
  q, k, v, mask, *_ = inputs
  batch, length, keys = *q.shape[:2], k.shape[1]
  lengths_B = jnp.full(batch, keys, jnp.int32) if keys % 2 else None
  if mask is not None:
    lengths_B = mask.sum(1, dtype=jnp.int32)
    k, v = _first(mask, k, v)
  q, k, v = map(_even, (q, k, v))
  out = jax.nn.dot_product_attention(
      q, k, v, scale=options.scale,
      key_value_seq_lengths=None if lengths_B is None else lengths_B.clip(1),
      implementation='cudnn')[:, :length]
  if mask is None:
    return out, None
  return jnp.where((lengths_B > 0)[:, None, None, None], out, 0), None


def _even(x_BxLxHxD):
  odd = x_BxLxHxD.shape[1] % 2
  return jnp.pad(x_BxLxHxD, [(0, 0), (0, odd), (0, 0), (0, 0)])


@jax.custom_vjp
def _first(mask_BxS, k_BxSxHxDh, v_BxSxHxDv):
  """Moves unmasked keys and values before the others."""
  return _move_to_front(mask_BxS, k_BxSxHxDh, v_BxSxHxDv)[0]


def _move_to_front(mask_BxS, *arrays):
  kept_BxS, left_BxS = (jnp.cumsum(x, 1) for x in (mask_BxS, ~mask_BxS))
  place_BxS = jnp.where(mask_BxS, kept_BxS, kept_BxS[:, -1:] + left_BxS) - 1
  index_BxS = jnp.broadcast_to(jnp.arange(mask_BxS.shape[1]), mask_BxS.shape)
  source_BxS = jax.vmap(lambda place, index: index.at[place].set(
                            index, unique_indices=True))(place_BxS, index_BxS)
  return _rows(source_BxS, arrays), (mask_BxS, place_BxS)


def _move_back(residuals, gradients):
  mask_BxS, place_BxS = residuals
  # cuDNN leaves undefined values beyond the length of a sequence.
  dk, dv = (jnp.where(mask_BxS[:, :, None, None], x, 0)
            for x in _rows(place_BxS, gradients))
  return None, dk, dv


_first.defvjp(_move_to_front, _move_back)


def _rows(index_BxS, arrays):
  return tuple(jax.vmap(lambda x, i: x[i])(x, index_BxS) for x in arrays)


def _obstacle(head_width, value_width, dtype):
  """Returns the requirement of cuDNN's attention that is missing, or ''."""
  local = dispatch.target_is_local()
  if dispatch.interpret_params() is not None:
    return 'a real GPU instead of an interpreter'
  found = getattr(jax.local_devices()[0], 'compute_capability', '')
  # An AMD device has its architecture here, for example gfx942.
  capability = float(found) if re.fullmatch(r'\d+\.\d+', str(found)) else 0
  if local and capability < 8:
    return 'an NVIDIA GPU of compute capability 8.0 or later'
  if jnp.dtype(dtype) not in (jnp.bfloat16, jnp.float16):
    return f'a 16-bit dtype, not {jnp.dtype(dtype).name}'
  # JAX checks the local device, even if the program is for another.
  widest = 256 if capability >= 9 else 128
  if head_width % 8 or head_width > widest:
    return f'a head width divisible by 8 and at most {widest}'
  if value_width != head_width:
    return 'values as wide as the keys'
  return _not_loaded()


@functools.cache
def _not_loaded():
  """Returns why JAX finds no cuDNN in this process, or ''."""
  x = jax.ShapeDtypeStruct((1, 8, 1, 8), jnp.bfloat16)
  try:
    jax.eval_shape(
        lambda x: jax.nn.dot_product_attention(x, x, x, implementation='cudnn'),
        x)
  except RuntimeError as error:
    return f'the library cuDNN ({error})'
  return ''
