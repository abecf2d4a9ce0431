"""Softmax attention: the public function and its dispatch."""

import jax
import jax.numpy as jnp

from kernels import checks, dispatch, varying


def softmax_attention(
  q,
  k,
  v,
  *,
  mask=None,
  scale=None,
  bias=None,
  kernel='auto',
  dropout_rate=0.0,
  dropout_key=None,
):
  """Softmax attention, arXiv 1706.03762 (Vaswani 2017), equation 1.

    out_i = sum_j softmax_j(scale * q_i . k_j + bias_(j - i)) v_j

  Not causal. Masked keys take no part; a sequence without any key gives
  zeros. Masked keys and values must be finite. Every query gets an output:
  the mask says nothing about queries.

  Args:
    q: [B, L, H, Dh], float32, bfloat16 or float16. Statistics and sums are
      float32 whatever the dtype, float32 products run at the highest
      precision.
    k: [B, S, G, Dh] in the dtype of q; G divides H, and each H / G heads of
      queries in a row read one head of keys and values, which is not copied.
    v: [B, S, G, Dv] in the dtype of q.
    mask: bool [B, S], True = key takes part; None = all do. Has no gradient.
    scale: a Python number; None = Dh**-0.5.
    bias: float32 [H, L + S - 1], added to the logits of each head by the
      distance j - i of key from query, 1 - L ... S - 1; None = none. Needs
      G = H, and 'dense' or 'chunked'.
    kernel: 'dense' keeps the weights [B, H, L, S]; 'chunked' makes them again
      in tiles, with memory linear in L and S; so do 'splash', JAX's splash
      attention on TPU, and 'cudnn', for 16-bit operands on an NVIDIA GPU.
      'auto' takes the device's own where it applies, else chunked.
    dropout_rate: Python number in [0, 1): the rate at which weights are
      dropped; the rest are divided by 1 - dropout_rate. By 'dense' and
      'chunked' only, which drop the same weights; see `random_bits.kept`.
    dropout_key: key of jax.random, or keys [B], one of each row; needed if
      dropout_rate > 0.

  Returns:
    [B, L, H, Dv] in the dtype of v.

  Raises:
    ValueError: an argument has the wrong shape, dtype or value.
    NotImplementedError: a named kernel cannot run; says why.
  """
  checks.check_keys_and_values(q, k, v)
  checks.check_mask(mask, k)
  checks.check_distances(bias, q, k)
  scale = q.shape[-1] ** -0.5 if scale is None else scale
  options = {'scale': checks.check_number('scale', scale)}
  dropout_rate = checks.check_rate('dropout_rate', dropout_rate)
  if dropout_rate:
    if dropout_key is None:
      raise ValueError('dropout_key must be given where dropout_rate > 0')
    if not jnp.issubdtype(dropout_key.dtype, jax.dtypes.prng_key):
      dropout_key = jax.random.wrap_key_data(dropout_key)
    options |= {'dropout_rate': dropout_rate, 'dropout_key': dropout_key}
  q, k, v, mask, bias = varying.alike((q, k, v, mask, bias))
  if bias is not None:
    options['bias'] = bias
  heads = q.shape[2]
  rows = _as_rows(q, k.shape[2])
  name = dispatch.resolve(
    'softmax',
    kernel,
    rows.shape,
    q.dtype,
    value_width=v.shape[-1],
    dropout_rate=dropout_rate,
    bias=bias is not None,
  )
  out = dispatch.backend('softmax', name).attend(rows, k, v, mask, **options)
  return _as_heads(out, heads)


def _as_rows(q_BxLxHxDh, groups):
  """[B, L H / G, G, Dh]: heads that read one head of keys are more queries."""
  batch, length, heads, width = q_BxLxHxDh.shape
  if heads == groups:
    return q_BxLxHxDh
  q = q_BxLxHxDh.reshape(batch, length, groups, -1, width)
  return q.swapaxes(2, 3).reshape(batch, -1, groups, width)


def _as_heads(out_BxNxGxDv, heads):
  """`_as_rows` undone."""
  batch, rows, groups, width = out_BxNxGxDv.shape
  if heads == groups:
    return out_BxNxGxDv
  out = out_BxNxGxDv.reshape(batch, -1, heads // groups, groups, width)
  return out.swapaxes(2, 3).reshape(batch, -1, heads, width)
