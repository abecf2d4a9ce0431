"""GELU that saves only its argument for the backward pass on a GPU.

Source: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2, with tanh

  gelu(x) = x (1 + tanh u) / 2,  u = sqrt(2 / pi) (x + 0.044715 x^3)
"""

import flax.linen as nn
import jax

import kernels


def gelu(x: jax.Array) -> jax.Array:
  """Computes `flax.linen.gelu` elementwise: any shape and float dtype."""
  # Recomputing tanh is faster than reading it back on a GPU, not on a CPU.
  return _gelu(x) if kernels.platform() == 'gpu' else nn.gelu(x)


@jax.custom_vjp
def _gelu(x):
  return nn.gelu(x)


def _forward(x):
  # Without the barrier the matmul before writes both x and GELU of x. With it,
  # the dropout after it computes GELU of the x that it reads.
  x = jax.lax.optimization_barrier(x)
  return nn.gelu(x), x


def _backward(x, dy):
  # Without the barrier XLA would save the tanh of the forward pass.
  return jax.vjp(nn.gelu, jax.lax.optimization_barrier(x))[1](dy)


_gelu.defvjp(_forward, _backward)
