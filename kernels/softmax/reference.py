"""The equation of softmax attention and its gradients in float64 numpy."""

import numpy as np


def attention(q, k, v, mask, do, *, scale=None):
  """(out, dq, dk, dv), float64, in the shapes of do, q, k, v.

  Args:
    q, k, v: [B, L, H, Dh], [B, S, H, Dh], [B, S, H, Dv].
    mask: bool [B, S], True = key takes part. Without any key out is 0.
    do: [B, L, H, Dv], the gradient of the output.
    scale: Dh**-0.5 unless given.
  """
  scale = np.shape(q)[-1] ** -0.5 if scale is None else scale
  q, k, v, do = (np.asarray(x, np.float64) for x in (q, k, v, do))
  keep_Bx1x1xS = np.asarray(mask)[:, None, None]
  logits = scale * np.einsum('blhd,bshd->bhls', q, k)
  logits = np.where(keep_Bx1x1xS, logits, -np.inf)
  top = np.max(logits, axis=-1, keepdims=True)
  e = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
  total = e.sum(-1, keepdims=True)
  weights = e / np.where(total > 0, total, 1.0)
  dweights = np.einsum('blhe,bshe->bhls', do, v)
  inner = (weights * dweights).sum(-1, keepdims=True)
  dlogits = scale * weights * (dweights - inner)
  return (
    np.einsum('bhls,bshe->blhe', weights, v),
    np.einsum('bhls,bshd->blhd', dlogits, k),
    np.einsum('bhls,blhd->bshd', dlogits, q),
    np.einsum('bhls,blhe->bshe', weights, do),
  )
