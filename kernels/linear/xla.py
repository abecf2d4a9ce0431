"""Linear attention in plain XLA; the compiler may partition it freely.

A processor's matrix products want the heads in front. There, and without a
feature map, the operands are put in that order once for each pass, [B, H, L,
Dh]; left to itself XLA would transpose them for every product.
"""

import jax.numpy as jnp

from kernels import dispatch, products
from kernels.linear import features


def forward(inputs, options, save):
  """(out, final state or None, (S, z, out) or None); see `kernels.vjp`."""
  order = _Order(inputs, options)
  t, dtype = order.letters, inputs.dtype
  phi_q, phi_k, v = _features(order, inputs, options)
  kv_BxHxDxE = products.einsum(f'{t}d,{t}e->bhde', phi_k, v)
  z_BxHxD = jnp.sum(phi_k, axis=order.tokens, dtype=jnp.float32)
  if inputs.state is not None:
    first = inputs.state if options.normalize else (inputs.state, 0.0)
    kv_BxHxDxE, z_BxHxD = kv_BxHxDxE + first[0], z_BxHxD + first[1]
  final = None
  if options.return_state:
    final = (kv_BxHxDxE, z_BxHxD) if options.normalize else kv_BxHxDxE
  kv_BxHxDxE = kv_BxHxDxE.astype(dtype)
  out = products.einsum(f'{t}d,bhde->{t}e', phi_q, kv_BxHxDxE) * options.scale
  if options.normalize:
    out = out / order.norm(phi_q, z_BxHxD, options.eps)
  (out,) = order.outward(out)
  # Unrounded, or the gradients of bfloat16 would lose what nearly cancels.
  saved = (kv_BxHxDxE, z_BxHxD, out if options.normalize else None)
  return out.astype(dtype), final, saved if save else None


def backward(inputs, saved, do, dfinal, options):
  """(gradients of q, k, v; None; gradient of the initial state).

  With u = phi(q) / norm and delta = do . out, the gradients of numerator and
  normaliser are
    dS = scale * sum_i u_i^T do_i,  dz = -sum_i delta_i u_i
    dphi(q_i) = (scale * do_i S^T - delta_i z) / norm_i.
  """
  order = _Order(inputs, options)
  t, dtype = order.letters, inputs.dtype
  kv, z_BxHxD, out = saved
  phi_q, phi_k, v = _features(order, inputs, options, round_features=False)
  slope_q, slope_k = (
    features.slope_from(options.feature_map, phi) for phi in (phi_q, phi_k)
  )
  (do,) = order.inward(do)
  dphi_q = products.einsum(f'{t}e,bhde->{t}d', do, kv) * options.scale
  dz = 0.0
  if options.normalize:
    norm = order.norm(phi_q.astype(dtype), z_BxHxD, options.eps)
    (out,) = order.inward(out)
    delta = jnp.sum(do.astype(jnp.float32) * out, axis=-1, keepdims=True)
    dphi_q = (dphi_q - delta * order.each(z_BxHxD)) / norm
    phi_q = phi_q / norm
    dz = -products.einsum(f'{t}d,{t}e->bhde', phi_q, delta)[..., 0]
  dkv = products.einsum(f'{t}d,{t}e->bhde', phi_q.astype(dtype), do)
  dkv = dkv * options.scale
  if dfinal is not None:
    last = dfinal if options.normalize else (dfinal, 0.0)
    dkv, dz = dkv + last[0], dz + last[1]
  dstate = (dkv, dz) if options.normalize else dkv
  dkv = dkv.astype(dtype)
  dphi_k = products.einsum(f'{t}e,bhde->{t}d', v, dkv)
  if options.normalize:
    dphi_k = dphi_k + order.each(dz)
  dv = products.einsum(f'{t}d,bhde->{t}e', phi_k.astype(dtype), dkv)
  grads = dphi_q * slope_q, dphi_k * slope_k, dv
  return order.outward(*(x.astype(dtype) for x in grads)), None, dstate


def _features(order, inputs, options, round_features=True):
  """phi(q), phi(k) and v, inside; phi in the dtype of q, or in float32."""
  q, k, v = inputs.apart()
  dtype = q.dtype if round_features else jnp.float32
  # Masked once more behind phi, which makes 1 of 0; in front of it, so that no
  # gradient of a gradient meets what masked tokens hold.
  phi_q, phi_k = (
    features.apply(options.feature_map, _keep(inputs.mask, x, 1)).astype(dtype)
    for x in (q, k)
  )
  return order.inward(phi_q, phi_k, v)


class _Order:
  """The order of the axes in which a pass computes, and its mask.

  Arrays come and go as [B, L, H, D] and are [B, H, L, D] inside on a
  processor, else as they come.

  Attributes:
    tokens: the axis of L inside.
    letters: of the first three axes inside, for einsum.
  """

  def __init__(self, inputs, options):
    # Joined with a feature map the transposes cost more than they save.
    plain = options.feature_map == 'identity'
    self.heads_first = dispatch.platform() == 'cpu' and plain
    self.mask = inputs.mask
    self.tokens, self.letters = (2, 'bhl') if self.heads_first else (1, 'blh')

  def inward(self, *arrays):
    """The arrays in order, 0 where a token is masked."""
    arrays = tuple(_keep(self.mask, x, 1) for x in arrays)
    return self._turned(arrays)

  def outward(self, *arrays):
    """[B, L, H, D] again, 0 where a token is masked."""
    return tuple(_keep(self.mask, x, 1) for x in self._turned(arrays))

  def _turned(self, arrays):
    if not self.heads_first:
      return arrays
    return tuple(jnp.swapaxes(x, 1, 2) for x in arrays)

  def each(self, x_BxHxD):
    """The same for every token."""
    return jnp.expand_dims(x_BxHxD, self.tokens)

  def norm(self, phi_q, z_BxHxD, eps):
    """phi(q) . z + eps as [..., 1]; 1 where a token is masked."""
    t = self.letters
    norm = products.einsum(
      f'{t}d,bhde->{t}e', phi_q.astype(jnp.float32), z_BxHxD[..., None]
    )
    norm = norm + eps
    if self.mask is None:
      return norm
    return jnp.where(_rows(self.mask, self.tokens), norm, 1)


def _keep(mask, x, tokens):
  return x if mask is None else jnp.where(_rows(mask, tokens), x, 0)


def _rows(mask_BxL, tokens):
  """The mask beside [B, L, H, D] (tokens 1) or [B, H, L, D] (tokens 2)."""
  shape = [1, 1, 1, 1]
  shape[0], shape[tokens] = mask_BxL.shape
  return mask_BxL.reshape(shape)
