"""The equations in float64 numpy, token by token: what errors are against.

Written from the papers' recurrences and their adjoints, sharing nothing with
the implementations. Cost O(L H Dh^2) a sequence, in a Python loop for the
causal one.
"""

import numpy as np


def rms(x):
  """Root mean square of an array."""
  return float(np.sqrt(np.mean(np.square(np.asarray(x, np.float64)))))


def relative_rms(got, want):
  """rms(got - want) / rms(want); 0 where both are 0."""
  got, want = (np.asarray(x, np.float64) for x in (got, want))
  error, size = rms(got - want), rms(want)
  return error if error == 0 else error / size if size else np.inf


def linear(
  q, k, v, mask, do, *, feature_map='elu1', normalize=True, scale=1.0, eps=1e-6
):
  """(out, dq, dk, dv) of linear attention, [B, L, H, Dh] float64 each.

  q, k, v, do: [B, L, H, Dh]; mask: bool [B, L].
  """
  q, k, v, do = (_counted(x, mask) for x in (q, k, v, do))
  keep_BxLx1x1 = np.asarray(mask)[:, :, None, None]
  phi_q, slope_q = _phi(feature_map, q)
  phi_k, slope_k = _phi(feature_map, k)
  phi_k = phi_k * keep_BxLx1x1
  state = np.einsum('blhd,blhe->bhde', phi_k, v)
  out = scale * np.einsum('blhd,bhde->blhe', phi_q, state)
  norm = np.ones_like(out[..., :1])
  total = phi_k.sum(axis=1)
  if normalize:
    norm = np.einsum('blhd,bhd->blh', phi_q, total)[..., None] + eps
    norm = np.where(keep_BxLx1x1, norm, 1.0)
  out = out / norm
  dnum = scale * do / norm
  dnorm = -(do * out).sum(-1, keepdims=True) / norm * normalize
  dphi_q = np.einsum('blhe,bhde->blhd', dnum, state) + dnorm * total[:, None]
  dstate = np.einsum('blhd,blhe->bhde', phi_q, dnum)
  dtotal = (phi_q * dnorm).sum(axis=1)
  dphi_k = np.einsum('blhe,bhde->blhd', v, dstate) + dtotal[:, None]
  dv = np.einsum('blhd,bhde->blhe', phi_k, dstate)
  results = out, dphi_q * slope_q, dphi_k * slope_k, dv
  return tuple(x * keep_BxLx1x1 for x in results)


def simpletron(q, k, v, mask, do, *, scale=None):
  """(out, dq, dk, dv) of SimpleTRON attention; as `linear`."""
  scale = np.shape(q)[1] ** -0.5 if scale is None else scale
  return linear(
    q, k, v, mask, do, feature_map='identity', normalize=False, scale=scale
  )


def lightning(
  q, k, v, mask, do, *, slopes, scale=1.0, initial_state=None, dfinal=None
):
  """(out, dq, dk, dv, final state, gradient of the initial state).

  slopes: [H]; initial_state and dfinal, the gradient of the final state:
  [B, H, Dh, Dh] or None for zeros; the rest as `linear`.
  """
  b, length, h, d = np.shape(q)
  left = np.exp(-np.asarray(slopes, np.float64))[:, None, None]
  q, k, v, do = (_counted(x, mask) for x in (q, k, v, do))
  zeros = np.zeros((b, h, d, d))
  state = zeros
  if initial_state is not None:
    state = np.asarray(initial_state, np.float64)
  out, dq, dk, dv = (np.zeros(q.shape) for _ in range(4))
  for t in range(length):
    state = left * state + k[:, t, :, :, None] * v[:, t, :, None, :]
    out[:, t] = scale * (q[:, t, :, None, :] @ state)[:, :, 0]
    dq[:, t] = scale * (state @ do[:, t, :, :, None])[..., 0]
  dstate = zeros if dfinal is None else np.asarray(dfinal, np.float64)
  for t in reversed(range(length)):
    dstate = dstate + scale * q[:, t, :, :, None] * do[:, t, :, None, :]
    dk[:, t] = (dstate @ v[:, t, :, :, None])[..., 0]
    dv[:, t] = (k[:, t, :, None, :] @ dstate)[:, :, 0]
    dstate = left * dstate
  keep = np.asarray(mask)[:, :, None, None]
  return *(x * keep for x in (out, dq, dk, dv)), state, dstate


def _counted(x, mask):
  """float64, with 0 in the rows of masked tokens."""
  x = np.asarray(x, np.float64)
  return np.where(np.asarray(mask)[:, :, None, None], x, 0.0)


def _phi(name, x):
  """phi(x) and phi'(x)."""
  if name == 'elu1':
    low = np.exp(np.minimum(x, 0.0))
    return np.where(x > 0, x + 1.0, low), np.where(x > 0, 1.0, low)
  if name == 'relu':
    return np.maximum(x, 0.0), (x > 0) * 1.0
  return x, np.ones_like(x)
