"""The equation of linear attention and its gradients in float64 numpy.

Tests and measurements compare the kernels with this independent version.
"""

import numpy as np


def attention(q, k, v, mask, do, *, feature_map='elu1', normalize=True,
              scale=1.0, eps=1e-6, initial_state=None, dfinal=None):
  """Returns linear attention and its gradients in float64.

  The results are (out, dq, dk, dv, final state, gradient of the initial state).

  Args:
    q, k, v: [B, L, H, Dh]; masked tokens may hold anything.
    mask: bool [B, L], True = token.
    do: [B, L, H, Dh], the gradient of the output.
    feature_map, normalize, scale, eps: see `lra.kernels.linear_attention`.
    initial_state, dfinal: pairs of [B, H, Dh, Dh] and [B, H, Dh], the initial S
      and z, and the gradients of the final ones; None for zeros. The final
      state and the gradient of the initial one have this form too.
  """
  q, k, v, do = (zero_masked(x, mask) for x in (q, k, v, do))
  keep_BxLx1x1 = np.asarray(mask)[:, :, None, None]
  phi_q, slope_q = _phi(feature_map, q)
  phi_k, slope_k = _phi(feature_map, k)
  phi_k = phi_k * keep_BxLx1x1
  before, after = ((0.0, 0.0) if x is None
                   else [np.asarray(y, np.float64) for y in x]
                   for x in (initial_state, dfinal))
  state = before[0] + np.einsum('blhd,blhe->bhde', phi_k, v)
  out = scale * np.einsum('blhd,bhde->blhe', phi_q, state)
  norm = np.ones_like(out[..., :1])
  total = before[1] + phi_k.sum(axis=1)
  if normalize:
    norm = np.einsum('blhd,bhd->blh', phi_q, total)[..., None] + eps
    norm = np.where(keep_BxLx1x1, norm, 1.0)
  out = out / norm
  dnum = scale * do / norm
  dnorm = -(do * out).sum(-1, keepdims=True) / norm * normalize
  dphi_q = np.einsum('blhe,bhde->blhd', dnum, state) + dnorm * total[:, None]
  dstate = after[0] + np.einsum('blhd,blhe->bhde', phi_q, dnum)
  dtotal = after[1] + (phi_q * dnorm).sum(axis=1)
  dphi_k = np.einsum('blhe,bhde->blhd', v, dstate) + dtotal[:, None]
  dv = np.einsum('blhd,bhde->blhe', phi_k, dstate)
  results = out, dphi_q * slope_q, dphi_k * slope_k, dv
  states = (state, total), (dstate, dtotal)
  return *(x * keep_BxLx1x1 for x in results), *states


def zero_masked(x_BxLxHxDh, mask):
  """Converts to float64 and sets the rows of masked tokens to 0."""
  x_BxLxHxDh = np.asarray(x_BxLxHxDh, np.float64)
  return np.where(np.asarray(mask)[:, :, None, None], x_BxLxHxDh, 0.0)


def _phi(name, x):
  """Returns phi(x) and phi'(x)."""
  if name == 'elu1':
    low = np.exp(np.minimum(x, 0.0))
    return np.where(x > 0, x + 1.0, low), np.where(x > 0, 1.0, low)
  if name == 'relu':
    return np.maximum(x, 0.0), (x > 0) * 1.0
  return x, np.ones_like(x)
