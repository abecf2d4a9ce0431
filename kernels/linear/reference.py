"""Linear attention in plain XLA; the compiler may partition it freely."""

import jax.numpy as jnp

from kernels import chunks
from kernels.linear import features


def forward(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, options):
  """The equation of `api.linear_attention`; differentiable by JAX."""
  q, k, v = q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh
  f32, dtype = jnp.float32, q.dtype
  prec = chunks.precision(dtype)
  q = features.apply(options.feature_map, q).astype(dtype)
  k = features.apply(options.feature_map, k).astype(dtype)
  if mask_BxL is not None:
    mask = mask_BxL[:, :, None, None]
    q, k, v = (jnp.where(mask, x, 0) for x in (q, k, v))
  kv = jnp.einsum(
    'blhd,blhe->bhde', k, v, precision=prec, preferred_element_type=f32
  )
  # A float32 state times the scale, rounded once: what the kernels do too.
  out = jnp.einsum(
    'blhd,bhde->blhe',
    q,
    kv.astype(dtype),
    precision=prec,
    preferred_element_type=f32,
  )
  out = out * options.scale
  if options.normalize:
    z_BxHxDh = jnp.sum(k, axis=1, dtype=f32)
    norm_BxLxH = jnp.einsum(
      'blhd,bhd->blh',
      q.astype(f32),
      z_BxHxDh,
      precision=chunks.precision(f32),
    )
    norm_BxLxHx1 = (norm_BxLxH + options.eps)[..., None]
    if mask_BxL is not None:
      # eps = 0 under an all-false mask must not put NaN into the gradient.
      norm_BxLxHx1 = jnp.where(mask, norm_BxLxHx1, 1)
    out = out / norm_BxLxHx1
  if mask_BxL is not None:
    out = jnp.where(mask, out, 0)
  return out.astype(dtype)
