"""Linear attention in plain XLA; the compiler may partition it freely.

Matmuls on a CPU need the heads before the length, so by default every matmul
transposes its operands. Without a feature map each pass transposes them once,
to [B, H, L, Dh]. With one, a normaliser and few lanes H Dh, one matmul covers
all heads and entries between different heads are set to 0.

With u = phi(q) / norm and delta = do . out,
  dS = scale * sum_i u_i^T do_i,  dz = -sum_i delta_i u_i
  dphi(q_i) = (scale * do_i S^T - delta_i z) / norm_i.
"""

import jax.numpy as jnp

from lra.kernels import dispatch, segments, xla
from lra.kernels.linear import features

# Up to this H Dh a CPU takes less time for one matmul over all heads than for
# one per head, in spite of H times as many operations.
LANES = 128


def forward(inputs, options, save):
  order = _order(inputs, options)
  dtype = inputs.dtype
  phi_q, phi_k, v = _features(order, inputs, options)
  kv = order.sums(phi_k, v)
  z_BxHxD = jnp.sum(phi_k, axis=order.tokens, dtype=jnp.float32)
  kv, z_BxHxD = _added(kv, z_BxHxD, inputs.state, options)
  final = _state(kv, z_BxHxD, options) if options.return_state else None
  kv = kv.astype(dtype)
  out = order.times(phi_q, kv) * options.scale
  if options.normalize:
    out = out / order.norm(phi_q, z_BxHxD, options.eps)
  (out,) = order.outward(out)
  # `out` is saved unrounded: terms of the bfloat16 gradients nearly cancel.
  saved = (kv, z_BxHxD, out if options.normalize else None)
  return (out.astype(dtype), final), saved if save else None


def backward(inputs, saved, cotangents, options):
  do, dfinal = cotangents
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
  dkv, dz = _added(dkv * options.scale, dz, dfinal, options)
  dstate = _state(dkv, dz, options)
  dkv = dkv.astype(dtype)
  dphi_k = order.times_turned(v, dkv)
  if options.normalize:
    dphi_k = dphi_k + order.each(dz)
  dv = order.times(phi_k.astype(dtype), dkv)
  grads = dphi_q * slope_q, dphi_k * slope_k, dv
  grads = order.outward(*(x.astype(dtype) for x in grads))
  return inputs.gradients(grads, state=dstate)


def _added(kv, z, state, options):
  if state is None:
    return kv, z
  first = state if options.normalize else (state, 0.0)
  return kv + first[0], z + first[1]


def _state(kv, z, options):
  return (kv, z) if options.normalize else kv


def _features(order, inputs, options, round_features=True):
  """Returns phi(q), phi(k), v with axes as in `order`, 0 at masked tokens.

  phi is in the dtype of q, or in float32 without `round_features`.
  """
  q, k, v = inputs.apart()
  dtype = q.dtype if round_features else jnp.float32
  # x is masked before phi, so that second derivatives see no masked contents,
  # and again after phi (in `inward`), because phi may map 0 to 1.
  phi_q, phi_k = (features.apply(options.feature_map,
                                 xla.keep(inputs.mask, x)).astype(dtype)
                  for x in (q, k))
  return order.inward(phi_q, phi_k, v)


def _order(inputs, options):
  _, _, h, d = inputs.shape
  stateless = inputs.state is None and not options.return_state
  mapped = options.normalize and options.feature_map != 'identity'
  few = dispatch.platform() == 'cpu' and h * d <= LANES
  return (_AllHeads if few and mapped and stateless else _Order)(inputs,
                                                                 options)


class _Order:
  """The order of axes in which a pass computes, with its mask and matmuls.

  `inward` takes arrays [B, L, H, D] to this order and sets masked tokens to 0,
  `outward` takes them back. The order is [B, H, L, D] on a CPU without a
  feature map, else [B, L, H, D]. `tokens` is the axis of L, `letters` are those
  of the first three axes for einsum.
  """

  def __init__(self, inputs, options):
    # With a feature map the transposes cost more time than they save.
    plain = options.feature_map == 'identity'
    self.heads_first = dispatch.platform() == 'cpu' and plain
    self.mask = inputs.mask
    self.tokens, self.letters = (2, 'bhl') if self.heads_first else (1, 'blh')

  def inward(self, *arrays):
    return self._turned([xla.keep(self.mask, x) for x in arrays])

  def outward(self, *arrays):
    return tuple(xla.keep(self.mask, x) for x in self._turned(arrays))

  def _turned(self, arrays):
    if not self.heads_first:
      return arrays
    return tuple(jnp.swapaxes(x, 1, 2) for x in arrays)

  def each(self, x_BxHxD):
    return jnp.expand_dims(x_BxHxD, self.tokens)

  def sums(self, a, b):
    """Returns the sum over tokens of a^T b: a state, [B, H, D, E]."""
    t = self.letters
    return xla.einsum(f'{t}d,{t}e->bhde', a, b)

  def times(self, a, state):
    t = self.letters
    return xla.einsum(f'{t}d,bhde->{t}e', a, state)

  def times_turned(self, a, state):
    t = self.letters
    return xla.einsum(f'{t}e,bhde->{t}d', a, state)

  def column(self, z_BxHxD):
    """Returns z as a state with E = 1."""
    return z_BxHxD[..., None]

  def of_column(self, state):
    return state[..., 0]

  def norm(self, phi_q, z_BxHxD, eps):
    """Returns phi(q) . z + eps as [..., 1]; 1 at masked tokens."""
    norm = self.times(phi_q.astype(jnp.float32), self.column(z_BxHxD)) + eps
    if self.mask is None:
      return norm
    tokens = (1, 3) if self.tokens == 2 else (2, 3)
    return jnp.where(jnp.expand_dims(self.mask, tokens), norm, 1)


class _AllHeads(_Order):
  """An `_Order` with matmuls over all heads at once; axes stay in place.

  A state is [B, H D, H E], 0 between different heads.
  """

  def __init__(self, inputs, options):
    super().__init__(inputs, options)
    self.heads = inputs.shape[2]
    self.heads_first, self.tokens, self.letters = False, 1, 'blh'

  def sums(self, a, b):
    return self._own(xla.einsum('blc,ble->bce', _flat(a), _flat(b)))

  def times(self, a, state):
    return self._apart(xla.einsum('blc,bce->ble', _flat(a), state))

  def times_turned(self, a, state):
    return self._apart(xla.einsum('ble,bce->blc', _flat(a), state))

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


def of_segments(inputs, options, segment_ids, num_segments):
  """Returns (out, states [B, N, ...] or None) of segments in each row.

  Autodiff computes gradients. See `lra.kernels.segments.chunks`.
  """
  q, k, v = inputs.apart()
  dtype = q.dtype
  c = segments.chunks(segment_ids, num_segments, inputs.mask)
  q, k, v = map(c.split, (q, k, v))
  phi_q, phi_k = (c.keep(features.apply(options.feature_map, x)).astype(dtype)
                  for x in (q, k))
  kv = c.of_segments(xla.einsum('bpchd,bpche->bphde', phi_k, v))
  z = c.of_segments(phi_k.sum(2, dtype=jnp.float32))
  kv, z = _added(kv, z, inputs.state, options)
  mine = c.of_chunks(kv).astype(dtype)
  if options.normalize:
    # No rounding: the gradients of numerator and normaliser nearly cancel.
    phi_q, mine = phi_q.astype(jnp.float32), mine.astype(jnp.float32)
  out = xla.einsum('bpchd,bphde->bpche', phi_q, mine) * options.scale
  if options.normalize:
    norm = xla.einsum('bpchd,bphde->bpche', phi_q, c.of_chunks(z)[..., None])
    out = out / jnp.where(c.kept_BxPxC[..., None, None], norm + options.eps, 1)
  state = _state(kv, z, options) if options.return_state else None
  return c.join(out).astype(dtype), state
