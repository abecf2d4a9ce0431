"""Projections shared by the mixers.

The functions are called inside a compact module and create its submodules,
so that every mixer names and initialises its projections alike.

Shapes: B batch, L length, D model width, H heads, Dh head width.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.errors import UserError

KERNEL_INIT = nn.initializers.xavier_uniform()


def head_width(width: int, num_heads: int) -> int:
  """Returns Dh, the width of one of `num_heads` equal slices of `width`.

  Raises:
    UserError: the heads do not divide the width.
  """
  if num_heads < 1 or width % num_heads:
    raise UserError(
        f'A width of {width} cannot be split into {num_heads} heads: choose '
        'config.model.num_heads and qkv_width so that it divides.')
  return width // num_heads


def split_heads(x_BxLxD: jax.Array, num_heads: int) -> jax.Array:
  """Slices the last axis into heads: [B, L, D] -> [B, L, H, D / H].

  Raises:
    UserError: the heads do not divide the width.
  """
  *rest, width = x_BxLxD.shape
  return x_BxLxD.reshape(*rest, num_heads, head_width(width, num_heads))


def project_heads(x_BxLxD: jax.Array, num_heads: int, width: int,
                  dtype: jnp.dtype, name: str,
                  use_bias: bool = True) -> jax.Array:
  """One learned projection split into heads: [B, L, D] -> [B, L, H, Dh].

  Raises:
    UserError: the heads do not divide the width.
  """
  features = (num_heads, head_width(width, num_heads))
  return nn.DenseGeneral(features, dtype=dtype, use_bias=use_bias,
                         kernel_init=KERNEL_INIT, name=name)(x_BxLxD)


def project_qkv(x_BxLxD: jax.Array, num_heads: int, qkv_width: int,
                dtype: jnp.dtype, use_bias: bool = True
                ) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Queries, keys and values, each [B, L, H, Dh] in `dtype`.

  Raises:
    UserError: the heads do not divide `qkv_width`.
  """
  return tuple(
      project_heads(x_BxLxD, num_heads, qkv_width, dtype, name, use_bias)
      for name in ('query', 'key', 'value'))


def merge_heads_and_project(o_BxLxHxDh: jax.Array, features: int,
                            dtype: jnp.dtype, use_bias: bool = True
                            ) -> jax.Array:
  """The output projection over all heads: [B, L, H, Dh] -> [B, L, D]."""
  return nn.DenseGeneral(features, axis=(-2, -1), dtype=dtype,
                         use_bias=use_bias, kernel_init=KERNEL_INIT,
                         name='out')(o_BxLxHxDh)
