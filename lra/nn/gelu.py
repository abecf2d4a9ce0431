"""GELU that, differentiated on a GPU, keeps its argument only.

Source: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2, by tanh

  gelu(x) = x (1 + tanh u) / 2,  u = sqrt(2 / pi) (x + 0.044715 x^3)
"""

import flax.linen as nn
import jax

import kernels


def gelu(x: jax.Array) -> jax.Array:
  """`flax.linen.gelu`, elementwise: any shape and float dtype."""
  # A GPU computes tanh sooner than it reads it back, a CPU does not.
  return _gelu(x) if kernels.platform() == 'gpu' else nn.gelu(x)


@jax.custom_vjp
def _gelu(x):
  return nn.gelu(x)


def _forward(x):
  # Without the barrier the product before writes x and GELU of x. With it the
  # dropout behind computes GELU of the x that it reads.
  x = jax.lax.optimization_barrier(x)
  return nn.gelu(x), x


def _backward(x, dy):
  # Without the barrier XLA would take the forward pass's tanh, and keep it.
  return jax.vjp(nn.gelu, jax.lax.optimization_barrier(x))[1](dy)


_gelu.defvjp(_forward, _backward)
