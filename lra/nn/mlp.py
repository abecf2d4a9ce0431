"""The MLP of a block, and GELU with a small backward pass on a GPU."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.nn.contraction import Dense
from lra.nn.dropout import Dropout


def gelu(x: jax.Array, exact: bool = False) -> jax.Array:
  """Computes `flax.linen.gelu`; on a GPU its backward pass needs only x.

  exact:  gelu(x) = x (1 + erf(x / sqrt(2))) / 2
  else:   gelu(x) = x (1 + tanh u) / 2,  u = sqrt(2 / pi) (x + 0.044715 x^3)

  Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2. Any shape and float
  dtype.
  """
  # A GPU recomputes tanh faster than it reads it from memory; a CPU does not.
  if kernels.platform() == 'gpu':
    return _gelu(exact, x)
  return nn.gelu(x, approximate=not exact)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gelu(exact, x):
  return nn.gelu(x, approximate=not exact)


def _forward(exact, x):
  # Without the barrier, XLA lets the matmul before write both x and GELU(x).
  # With it, the dropout that follows reads x and computes GELU(x) itself.
  x = jax.lax.optimization_barrier(x)
  return nn.gelu(x, approximate=not exact), x


def _backward(exact, x, dy):
  # Without the barrier XLA would save the tanh of the forward pass.
  once = functools.partial(nn.gelu, approximate=not exact)
  return jax.vjp(once, jax.lax.optimization_barrier(x))[1](dy)


_gelu.defvjp(_forward, _backward)


class Mlp(nn.Module):
  """Dense, GELU, Dense, with dropout after each dense layer.

  `gated` uses SiLU(W x) * (V x) instead of GELU(W x) (SwiGLU: Shazeer 2020,
  arXiv 2002.05202, equation 6).
  """
  width: int
  dropout: float
  dtype: jnp.dtype
  gated: bool = False
  tie_dropout: bool = False
  exact: bool = False

  @nn.compact
  def __call__(self, x_BxLxD, *, train: bool):
    y_BxLxF = Dense(self.width, dtype=self.dtype, name='up')(x_BxLxD)
    if self.gated:
      y_BxLxF *= nn.silu(
          Dense(self.width, dtype=self.dtype, name='gate')(x_BxLxD))
    else:
      y_BxLxF = gelu(y_BxLxF, self.exact)
    drop = functools.partial(Dropout, self.dropout, tied=self.tie_dropout)
    y_BxLxF = drop()(y_BxLxF, deterministic=not train)
    y_BxLxD = Dense(
        x_BxLxD.shape[-1], dtype=self.dtype, name='down')(y_BxLxF)
    return drop()(y_BxLxD, deterministic=not train)
