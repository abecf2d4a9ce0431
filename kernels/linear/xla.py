"""Linear attention in plain XLA; the compiler may partition it freely.

Matmuls on a CPU need the heads before the length; by default XLA transposes the
operands of every matmul. Without a feature map each pass transposes them once,
to [B, H, L, Dh]. With a feature map, a normaliser and few lanes H Dh, one
matmul covers all heads and nothing is transposed: entries between different
heads are set to 0.
"""

import jax.numpy as jnp

from lra.kernels import dispatch, products, segments
from lra.kernels.linear import features

# Up to this H Dh a CPU takes less time for one matmul over all heads than for
# one per head, in spite of H times as many operations.
LANES = 128


def forward(inputs, options, save):
  """Returns (out, final state or None, (S, z, out) or None)."""
  order = _order(inputs, options)
  dtype = inputs.dtype
  phi_q, phi_k, v = _features(order, inputs, options)
  kv = order.sums(phi_k, v)
  z_BxHxD = jnp.sum(phi_k, axis=order.tokens, dtype=jnp.float32)
  if inputs.state is not None:
    first = inputs.state if options.normalize else (inputs.state, 0.0)
    kv, z_BxHxD = kv + first[0], z_BxHxD + first[1]
  final = None
  if options.return_state:
    final = (kv, z_BxHxD) if options.normalize else kv
  kv = kv.astype(dtype)
  out = order.times(phi_q, kv) * options.scale
  if options.normalize:
    out = out / order.norm(phi_q, z_BxHxD, options.eps)
  (out,) = order.outward(out)
  # `out` is saved unrounded: terms of the bfloat16 gradients nearly cancel.
  saved = (kv, z_BxHxD, out if options.normalize else None)
  return out.astype(dtype), final, saved if save else None


def backward(inputs, saved, do, dfinal, options):
  """Returns (gradients of q, k, v; None for a bias; gradient of the state).

  With u = phi(q) / norm and delta = do . out, the gradients of numerator and
  normaliser are
    dS = scale * sum_i u_i^T do_i,  dz = -sum_i delta_i u_i
    dphi(q_i) = (scale * do_i S^T - delta_i z) / norm_i.
  """
  order = _order(inputs, options)
  dtype = inputs.dtype
  kv, z_BxHxD, out = saved
  phi_q, phi_k, v = _features(order, inputs, options, round_features=False)
  slope_q, slope_k = (features.slope_from(options.feature_map, phi)
                      for phi in (phi_q, phi_k))
  (do,) = order.inward(do)
  dphi_q = order.times_turned(do, kv) * options.scale
  dz = 0.0
  if options.normalize:
    norm = order.norm(phi_q.astype(dtype), z_BxHxD, options.eps)
    (out,) = order.inward(out)
    delta = jnp.sum(do.astype(jnp.float32) * out, axis=-1, keepdims=True)
    dphi_q = (dphi_q - delta * order.each(z_BxHxD)) / norm
    phi_q = phi_q / norm
    dz = -order.of_column(order.sums(phi_q, delta))
  dkv = order.sums(phi_q.astype(dtype), do)
  dkv = dkv * options.scale
  if dfinal is not None:
    last = dfinal if options.normalize else (dfinal, 0.0)
    dkv, dz = dkv + last[0], dz + last[1]
  dstate = (dkv, dz) if options.normalize else dkv
  dkv = dkv.astype(dtype)
  dphi_k = order.times_turned(v, dkv)
  if options.normalize:
    dphi_k = dphi_k + order.each(dz)
  dv = order.times(phi_k.astype(dtype), dkv)
  grads = dphi_q * slope_q, dphi_k * slope_k, dv
  return order.outward(*(x.astype(dtype) for x in grads)), None, dstate


def _features(order, inputs, options, round_features=True):
  """Returns phi(q), phi(k), v with axes as in `order`, 0 at masked tokens.

  phi is in the dtype of q, or in float32 without `round_features`.
  """
  q, k, v = inputs.apart()
  dtype = q.dtype if round_features else jnp.float32
  # x is masked before phi, so that second derivatives see no masked contents,
  # and again after phi (in `inward`), because phi may map 0 to 1.
  phi_q, phi_k = (features.apply(options.feature_map,
                                 _keep(inputs.mask, x, 1)).astype(dtype)
                  for x in (q, k))
  return order.inward(phi_q, phi_k, v)


def _order(inputs, options):
  """Returns the `_Order` with which this pass takes the least time."""
  _, _, h, d = inputs.shape
  stateless = inputs.state is None and not options.return_state
  mapped = options.normalize and options.feature_map != 'identity'
  few = dispatch.platform() == 'cpu' and h * d <= LANES
  return (_AllHeads if few and mapped and stateless else _Order)(inputs,
                                                                 options)


class _Order:
  """The order of axes in which a pass computes, with its mask and matmuls.

  `inward` takes arrays [B, L, H, D] to this order, `outward` takes them back.
  The order is [B, H, L, D] on a CPU without a feature map, else [B, L, H, D].

  Attributes:
    tokens: the axis of L in this order.
    letters: letters of the first three axes in this order, for einsum.
  """

  def __init__(self, inputs, options):
    # With a feature map the transposes cost more time than they save.
    plain = options.feature_map == 'identity'
    self.heads_first = dispatch.platform() == 'cpu' and plain
    self.mask = inputs.mask
    self.tokens, self.letters = (2, 'bhl') if self.heads_first else (1, 'blh')

  def inward(self, *arrays):
    """Reorders axes of arrays [B, L, H, D] and zeroes masked tokens."""
    arrays = tuple(_keep(self.mask, x, 1) for x in arrays)
    return self._turned(arrays)

  def outward(self, *arrays):
    """Reorders axes back to [B, L, H, D] and zeroes masked tokens."""
    return tuple(_keep(self.mask, x, 1) for x in self._turned(arrays))

  def _turned(self, arrays):
    if not self.heads_first:
      return arrays
    return tuple(jnp.swapaxes(x, 1, 2) for x in arrays)

  def each(self, x_BxHxD):
    """Inserts an axis of size 1 for the tokens."""
    return jnp.expand_dims(x_BxHxD, self.tokens)

  def sums(self, a, b):
    """Returns the sum over tokens of a^T b: a state, [B, H, D, E]."""
    t = self.letters
    return products.einsum(f'{t}d,{t}e->bhde', a, b)

  def times(self, a, state):
    """Returns the product a S for every token, [..., E]."""
    t = self.letters
    return products.einsum(f'{t}d,bhde->{t}e', a, state)

  def times_turned(self, a, state):
    """Returns the product a S^T for every token, [..., D]."""
    t = self.letters
    return products.einsum(f'{t}e,bhde->{t}d', a, state)

  def column(self, z_BxHxD):
    """Returns z as a state with E = 1."""
    return z_BxHxD[..., None]

  def of_column(self, state):
    """Returns [B, H, D] from a state with E = 1."""
    return state[..., 0]

  def norm(self, phi_q, z_BxHxD, eps):
    """Returns phi(q) . z + eps as [..., 1]; 1 at masked tokens."""
    norm = self.times(phi_q.astype(jnp.float32), self.column(z_BxHxD)) + eps
    if self.mask is None:
      return norm
    return jnp.where(_rows(self.mask, self.tokens), norm, 1)


class _AllHeads(_Order):
  """An `_Order` with matmuls over all heads at once; axes stay in place.

  A state is [B, H D, H E], 0 between different heads.
  """

  def __init__(self, inputs, options):
    super().__init__(inputs, options)
    self.heads = inputs.shape[2]
    self.heads_first, self.tokens, self.letters = False, 1, 'blh'

  def sums(self, a, b):
    return self._own(products.einsum('blc,ble->bce', _flat(a), _flat(b)))

  def times(self, a, state):
    return self._apart(products.einsum('blc,bce->ble', _flat(a), state))

  def times_turned(self, a, state):
    return self._apart(products.einsum('ble,bce->blc', _flat(a), state))

  def column(self, z_BxHxD):
    z_BxCx1 = z_BxHxD.reshape(z_BxHxD.shape[0], -1, 1)
    return self._own(jnp.repeat(z_BxCx1, self.heads, axis=2))

  def of_column(self, state):
    return state.sum(-1).reshape(state.shape[0], self.heads, -1)

  def _own(self, state):
    """Sets the entries between different heads to 0."""
    of_row, of_column = (jnp.arange(size) // (size // self.heads)
                         for size in state.shape[1:])
    own = of_row[None, :, None] == of_column[None, None]
    return jnp.where(own, state, 0)

  def _apart(self, x_BxLxC):
    return x_BxLxC.reshape(*x_BxLxC.shape[:2], self.heads, -1)


def _flat(x_BxLxHxD):
  return x_BxLxHxD.reshape(*x_BxLxHxD.shape[:2], -1)


def _keep(mask, x, tokens):
  return x if mask is None else jnp.where(_rows(mask, tokens), x, 0)


def _rows(mask_BxL, tokens):
  """Aligns the mask with [B, L, H, D] (tokens 1) or [B, H, L, D] (tokens 2)."""
  shape = [1, 1, 1, 1]
  shape[0], shape[tokens] = mask_BxL.shape
  return mask_BxL.reshape(shape)


def of_segments(inputs, options, segment_ids, num_segments):
  """Computes attention within segments: several sequences in each row.

  Returns out [B, L, H, E], and states with an axis N of segments after B, or
  None. Autodiff computes gradients. See `lra.kernels.segments.chunks`.
  """
  q, k, v = inputs.apart()
  dtype = q.dtype
  c = segments.chunks(segment_ids, num_segments, inputs.mask)
  q, k, v = map(c.split, (q, k, v))
  phi_q, phi_k = (c.keep(features.apply(options.feature_map, x)).astype(dtype)
                  for x in (q, k))
  kv = c.of_segments(products.einsum('bpchd,bpche->bphde', phi_k, v))
  z = c.of_segments(phi_k.sum(2, dtype=jnp.float32))
  if inputs.state is not None:
    first = inputs.state if options.normalize else (inputs.state, 0.0)
    kv, z = kv + first[0], z + first[1]
  mine = c.of_chunks(kv).astype(dtype)
  if options.normalize:
    # No rounding: the gradients of numerator and normaliser nearly cancel.
    phi_q, mine = phi_q.astype(jnp.float32), mine.astype(jnp.float32)
  out = products.einsum('bpchd,bphde->bpche', phi_q, mine) * options.scale
  if options.normalize:
    norm = products.einsum('bpchd,bphde->bpche', phi_q,
                           c.of_chunks(z)[..., None])
    out = out / jnp.where(c.kept_BxPxC[..., None, None], norm + options.eps, 1)
  state = None
  if options.return_state:
    state = (kv, z) if options.normalize else kv
  return c.join(out).astype(dtype), state
