"""Linear attention in plain XLA; the compiler may partition it freely."""

import jax.numpy as jnp

from kernels import products
from kernels.linear import features


def forward(q, k, v, mask, options, save):
  """(out, (S, z) or None); see `api.linear_attention`."""
  dtype = q.dtype
  phi_q, phi_k, v = _features(q, k, v, mask, options)
  kv = products.einsum('blhd,blhe->bhde', phi_k, v).astype(dtype)
  z = jnp.sum(phi_k, axis=1, keepdims=True, dtype=jnp.float32)
  out = products.einsum('blhd,bhde->blhe', phi_q, kv) * options.scale
  if options.normalize:
    out = out / _norm(phi_q, z, mask, options)
  return _keep(mask, out).astype(dtype), (kv, z) if save else None


def backward(q, k, v, mask, saved, do, options):
  """(dq, dk, dv)."""
  dtype = q.dtype
  kv, z = saved
  q, k, do = (_keep(mask, x) for x in (q, k, do))
  phi_q, phi_k, v = _features(q, k, v, mask, options)
  dphi_q = products.einsum('blhe,bhde->blhd', do, kv)
  dz = 0.0
  if options.normalize:
    # Divide the float32 products, not their bf16 operand do: one rounding
    # less in dq and in dkv.
    norm = _norm(phi_q, z, mask, options)
    num = products.einsum('blhd,bhde->blhe', phi_q, kv)
    num = jnp.sum(do * num, axis=-1, keepdims=True)
    dnorm = -num / jnp.square(norm)
    dphi_q = dphi_q / norm + dnorm * z
    dz = jnp.sum(phi_q * dnorm, axis=1, keepdims=True)
    phi_q = features.apply(options.feature_map, q) / norm
  dkv = products.einsum('blhd,blhe->bhde', phi_q.astype(dtype), do)
  dkv = (dkv * options.scale).astype(dtype)
  dphi_k = products.einsum('blhe,bhde->blhd', v, dkv) + dz * options.scale
  dv = products.einsum('blhd,bhde->blhe', phi_k, dkv)
  dq = dphi_q * features.slope(options.feature_map, q) * options.scale
  dk = dphi_k * features.slope(options.feature_map, k)
  return tuple(_keep(mask, x).astype(dtype) for x in (dq, dk, dv))


def _features(q, k, v, mask, options):
  """phi(q), phi(k) in the dtype of q, and v; 0 where a token is masked."""
  phi_q, phi_k = (
    features.apply(options.feature_map, x).astype(q.dtype) for x in (q, k)
  )
  return tuple(_keep(mask, x) for x in (phi_q, phi_k, v))


def _norm(phi_q, z_Bx1xHxDh, mask, options):
  """phi(q) . z + eps as [B, L, H, 1]; 1 where a token is masked."""
  norm = products.einsum(
    'blhd,bhd->blh', phi_q.astype(jnp.float32), z_Bx1xHxDh[:, 0]
  )
  norm = norm[..., None] + options.eps
  return norm if mask is None else jnp.where(mask[:, :, None, None], norm, 1)


def _keep(mask, x_BxLxHxDh):
  if mask is None:
    return x_BxLxHxDh
  return jnp.where(mask[:, :, None, None], x_BxLxHxDh, 0)
