"""The recurrence of lightning attention and its adjoint in float64 numpy.

A Python loop over tokens takes O(L H Dh^2) operations per sequence.
"""

import numpy as np

from lra.kernels.linear.reference import zero_masked


def attention(q, k, v, mask, do, *, slopes, scale=1.0, initial_state=None,
              dfinal=None):
  """Returns lightning attention and its gradients in float64.

  Arguments and results are those of `linear.reference.attention`, except for
  `slopes` [H]. States are [B, H, Dh, Dh], without a normaliser.
  """
  b, length, h, d = np.shape(q)
  left = np.exp(-np.asarray(slopes, np.float64))[:, None, None]
  q, k, v, do = (zero_masked(x, mask) for x in (q, k, v, do))
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
