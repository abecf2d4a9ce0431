"""Softmax attention that keeps its weights [B, H, L, S]; supports dropout."""

import jax
import jax.numpy as jnp

from lra.kernels import random_bits
from lra.kernels.softmax import distances
from lra.kernels.xla import precision


def forward(inputs, options, save):
  del save
  q, k, v, mask, bias, key = inputs
  weights_BxHxLxS = weights(q, k, mask, scale=options.scale, bias=bias)
  if options.dropout_rate:
    weights_BxHxLxS = drop(weights_BxHxLxS, options.dropout_rate, key)
  return apply_weights(weights_BxHxLxS, v), None


def weights(q_BxLxHxDh, k_BxSxHxDh, mask_BxS=None, *, scale, bias=None):
  logits_BxHxLxS = scale * jnp.einsum(
      'blhd,bshd->bhls', q_BxLxHxDh, k_BxSxHxDh,
      precision=precision(q_BxLxHxDh.dtype),
      preferred_element_type=jnp.float32)
  if bias is not None:
    bias_HxLxS = distances.along_diagonals(bias, q_BxLxHxDh.shape[1])
    logits_BxHxLxS += bias_HxLxS[None]
  return masked_softmax(logits_BxHxLxS, mask_BxS)


def masked_softmax(logits_BxHxLxS, mask_BxS):
  """Computes softmax of float32 logits over unmasked keys; 0 if there are none.
  """
  if mask_BxS is None:
    return jax.nn.softmax(logits_BxHxLxS)
  mask_Bx1x1xS = mask_BxS[:, None, None]
  # Softmax of a row of -inf is NaN. Softmax with where=... has a NaN gradient.
  masked_Bx1x1x1 = jnp.where(mask_Bx1x1xS.any(-1, keepdims=True), -jnp.inf, 0)
  logits_BxHxLxS = jnp.where(mask_Bx1x1xS, logits_BxHxLxS, masked_Bx1x1x1)
  return jnp.where(mask_Bx1x1xS, jax.nn.softmax(logits_BxHxLxS), 0)


def drop(weights_BxHxLxS, rate, key):
  """Zeroes weights at `rate`; divides the rest by 1 - rate, as in flax."""
  B, *shape = weights_BxHxLxS.shape
  kept_BxHxLxS = random_bits.kept(key, B, shape, rate)
  return jnp.where(kept_BxHxLxS, weights_BxHxLxS / (1.0 - rate), 0)


def apply_weights(weights_BxHxLxS, v_BxSxHxDv):
  """Sums values by float32 weights: [B, L, H, Dv] in the values' dtype."""
  return jnp.einsum('bhls,bshd->blhd', weights_BxHxLxS.astype(v_BxSxHxDv.dtype),
                    v_BxSxHxDv, precision=precision(v_BxSxHxDv.dtype),
                    preferred_element_type=jnp.float32).astype(v_BxSxHxDv.dtype)
