"""Gated linear attention and its gradients in float64 numpy, token by token.

Tests and measurements compare the kernels with this independent version.
"""

import numpy as np


def attention(q, k, v, log_decay, do, *, scale=1.0, mask=None, reverse=False,
              initial_state=None, dfinal=None):
  """Returns (o, dq, dk, dv, dlog_decay, final state, dinitial state).

  Args:
    q, k: [B, L, G, N]; masked tokens may hold anything.
    v, do: [B, L, H, E]; G divides H.
    log_decay: [B, L, H] or [B, L, H, N].
    scale, mask, reverse, initial_state: see
    `lra.kernels.gated_linear_attention`.
    dfinal: the gradient of the final state, [B, H, N, E], or None.
  """
  b, length, heads, width = v.shape
  groups, features = q.shape[2:]
  token = np.ones((b, length), bool) if mask is None else np.asarray(mask)
  q, k, v, g, do = (
      np.where(token.reshape(b, length, *(1,) * (x.ndim - 2)), x, 0).astype(
          np.float64) for x in (q, k, v, log_decay, do))
  q, k = (np.repeat(x, heads // groups, axis=2) for x in (q, k))
  gate = np.broadcast_to(np.exp(g if g.ndim == 4 else g[..., None]), q.shape)
  order = list(range(length))[::-1 if reverse else 1]
  zeros = np.zeros((b, heads, features, width))
  state = zeros if initial_state is None else zeros + initial_state
  before = np.zeros((length, *zeros.shape))
  o, dq, dk, dv, dgate = (
      np.zeros(x.shape) for x in (v, q, k, v, gate))
  for t in order:
    before[t] = state
    state = (gate[:, t, :, :, None] * state
             + k[:, t, :, :, None] * v[:, t, :, None])
    o[:, t] = scale * np.einsum('bhd,bhde->bhe', q[:, t], state)
    dq[:, t] = scale * np.einsum('bhe,bhde->bhd', do[:, t], state)
  final = state
  dstate = zeros if dfinal is None else zeros + dfinal
  for t in order[::-1]:
    dstate = dstate + scale * q[:, t, :, :, None] * do[:, t, :, None]
    dk[:, t] = np.einsum('bhde,bhe->bhd', dstate, v[:, t])
    dv[:, t] = np.einsum('bhd,bhde->bhe', k[:, t], dstate)
    dgate[:, t] = (before[t] * dstate).sum(-1)
    dstate = gate[:, t, :, :, None] * dstate
  dg = gate * dgate
  dg = dg if g.ndim == 4 else dg.sum(-1)
  dq, dk = (x.reshape(b, length, groups, -1, features).sum(3)
            for x in (dq, dk))
  keep = token[..., None, None]
  return (*(np.where(keep, x, 0) for x in (o, dq, dk, dv)),
          np.where(keep if g.ndim == 4 else keep[..., 0], dg, 0),
          final, dstate)
