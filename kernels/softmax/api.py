"""Softmax attention: the public function."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels import call, checks, dispatch


class Options(NamedTuple):
  scale: float
  dropout_rate: float = 0.0


class Inputs(NamedTuple):
  """Arrays of `softmax_attention`; every head of q has keys of its own."""
  q: jax.Array
  k: jax.Array
  v: jax.Array
  mask: jax.Array | None = None
  bias: jax.Array | None = None
  dropout_key: Any = None


def softmax_attention(q, k, v, *, mask=None, scale=None, bias=None,
                      kernel='auto', dropout_rate=0.0, dropout_key=None):
  """Computes softmax attention, arXiv 1706.03762 (Vaswani 2017), eq. 1.

    out_i = sum_j softmax_j(scale * q_i . k_j + bias_(j - i)) v_j

  It is not causal. Masked keys are left out; a sequence without any key returns
  zeros. Masked keys and values must be finite. Every query gets an output: the
  mask does not apply to queries. Errors are those of `linear_attention`.

  Args:
    q: [B, L, H, Dh], float32, bfloat16 or float16. Statistics and sums are
      float32 for every dtype; float32 matmuls run at the highest precision.
    k: [B, S, G, Dh] in the dtype of q; G divides H, and each H / G consecutive
      query heads read one head of keys and values, without a copy.
    v: [B, S, G, Dv] in the dtype of q.
    mask: bool [B, S], True = key takes part; None = all do. Has no gradient.
    scale: a Python number; None = Dh**-0.5.
    bias: float32 [H, L + S - 1], added to the logits of each head by the
      distance j - i of key and query, 1 - L ... S - 1; None = no bias. Needs
      G = H, and 'dense' or 'chunked'.
    kernel: 'dense' keeps the weights [B, H, L, S]; the others recompute them in
      tiles, with memory linear in L and S. 'chunked' runs everywhere. 'splash'
      is JAX's splash attention on TPU. 'cudnn' needs 16-bit operands and an
      NVIDIA GPU. 'auto' takes the one for this device, else 'chunked'.
    dropout_rate: Python number in [0, 1), the share of weights that are
      dropped; the rest are divided by 1 - dropout_rate. Only 'dense' and
      'chunked' support it. Both drop the same weights, see `random_bits.kept`.
    dropout_key: key of jax.random, or keys [B], one for each row; needed if
      dropout_rate > 0.

  Returns:
    [B, L, H, Dv] in the dtype of v.
  """
  checks.check_keys_and_values(q, k, v)
  checks.check_mask(mask, k)
  checks.check_distances(bias, q, k)
  scale = q.shape[-1] ** -0.5 if scale is None else scale
  options = Options(checks.check_number('scale', scale),
                    checks.check_rate('dropout_rate', dropout_rate))
  if options.dropout_rate:
    if dropout_key is None:
      raise ValueError('dropout_key must be given if dropout_rate > 0')
    if not jnp.issubdtype(dropout_key.dtype, jax.dtypes.prng_key):
      dropout_key = jax.random.wrap_key_data(dropout_key)
  else:
    dropout_key = None
  heads = q.shape[2]
  rows = _as_rows(q, k.shape[2])
  name = dispatch.resolve('softmax', kernel, rows.shape, q.dtype,
                          value_width=v.shape[-1],
                          dropout_rate=options.dropout_rate,
                          bias=bias is not None)
  inputs = Inputs(rows, k, v, mask, bias, dropout_key)
  return _as_heads(call.run('softmax', name, options, inputs), heads)


def _as_rows(q_BxLxHxDh, groups):
  """Turns query heads that share keys into rows of one head: [B, N, G, Dh]."""
  batch, length, heads, width = q_BxLxHxDh.shape
  if heads == groups:
    return q_BxLxHxDh
  q = q_BxLxHxDh.reshape(batch, length, groups, -1, width)
  return q.swapaxes(2, 3).reshape(batch, -1, groups, width)


def _as_heads(out_BxNxGxDv, heads):
  batch, rows, groups, width = out_BxNxGxDv.shape
  if heads == groups:
    return out_BxNxGxDv
  out = out_BxNxGxDv.reshape(batch, -1, heads // groups, groups, width)
  return out.swapaxes(2, 3).reshape(batch, -1, heads, width)
