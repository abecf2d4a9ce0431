"""Linear attention in plain XLA; the compiler may partition it freely."""

import jax.numpy as jnp

from kernels import products
from kernels.linear import features


def forward(inputs, options, save):
  """(out, final state or None, sums or None); see `kernels.vjp`."""
  q, k, v = inputs.apart()
  dtype, mask = q.dtype, inputs.mask
  phi_q, phi_k, v = _features(q, k, v, mask, options)
  kv_BxHxDxE = products.einsum('blhd,blhe->bhde', phi_k, v)
  z_BxHxD = jnp.sum(phi_k, axis=1, dtype=jnp.float32)
  if inputs.state is not None:
    first = inputs.state if options.normalize else (inputs.state, 0.0)
    kv_BxHxDxE, z_BxHxD = kv_BxHxDxE + first[0], z_BxHxD + first[1]
  final = None
  if options.return_state:
    final = (kv_BxHxDxE, z_BxHxD) if options.normalize else kv_BxHxDxE
  kv_BxHxDxE = kv_BxHxDxE.astype(dtype)
  out = products.einsum('blhd,bhde->blhe', phi_q, kv_BxHxDxE) * options.scale
  if options.normalize:
    out = out / _norm(phi_q, z_BxHxD, mask, options)
  saved = (kv_BxHxDxE, z_BxHxD) if save else None
  return _keep(mask, out).astype(dtype), final, saved


def backward(inputs, saved, do, dfinal, options):
  """(gradients of q, k, v; None; gradient of the initial state)."""
  q, k, v = inputs.apart()
  dtype, mask = q.dtype, inputs.mask
  kv, z_BxHxD = saved
  q, k, do = (_keep(mask, x) for x in (q, k, do))
  phi_q, phi_k, v = _features(q, k, v, mask, options)
  dphi_q = products.einsum('blhe,bhde->blhd', do, kv)
  dz = 0.0
  if options.normalize:
    # Divide the float32 products, not their bf16 operand do: one rounding
    # less in dq and in dkv.
    norm = _norm(phi_q, z_BxHxD, mask, options)
    num = products.einsum('blhd,bhde->blhe', phi_q, kv)
    num = jnp.sum(do * num, axis=-1, keepdims=True)
    dnorm = -num / jnp.square(norm)
    dphi_q = dphi_q / norm + dnorm * z_BxHxD[:, None]
    dz = options.scale * jnp.sum(phi_q * dnorm, axis=1)
    phi_q = features.apply(options.feature_map, q) / norm
  dkv = products.einsum('blhd,blhe->bhde', phi_q.astype(dtype), do)
  dkv = dkv * options.scale
  if dfinal is not None:
    last = dfinal if options.normalize else (dfinal, 0.0)
    dkv, dz = dkv + last[0], dz + last[1]
  dstate = (dkv, dz) if options.normalize else dkv
  dkv = dkv.astype(dtype)
  dphi_k = products.einsum('blhe,bhde->blhd', v, dkv)
  if options.normalize:
    dphi_k = dphi_k + dz[:, None]
  dv = products.einsum('blhd,bhde->blhe', phi_k, dkv)
  dq = dphi_q * features.slope(options.feature_map, q) * options.scale
  dk = dphi_k * features.slope(options.feature_map, k)
  grads = tuple(_keep(mask, x).astype(dtype) for x in (dq, dk, dv))
  return grads, None, dstate


def _features(q, k, v, mask, options):
  """phi(q), phi(k) in the dtype of q, and v; 0 where a token is masked."""
  phi_q, phi_k = (
    features.apply(options.feature_map, x).astype(q.dtype) for x in (q, k)
  )
  return tuple(_keep(mask, x) for x in (phi_q, phi_k, v))


def _norm(phi_q, z_BxHxD, mask, options):
  """phi(q) . z + eps as [B, L, H, 1]; 1 where a token is masked."""
  norm = products.einsum('blhd,bhd->blh', phi_q.astype(jnp.float32), z_BxHxD)
  norm = norm[..., None] + options.eps
  return norm if mask is None else jnp.where(mask[:, :, None, None], norm, 1)


def _keep(mask, x_BxLxHxDh):
  if mask is None:
    return x_BxLxHxDh
  return jnp.where(mask[:, :, None, None], x_BxLxHxDh, 0)
