"""The equation of softmax attention and its gradients in float64 numpy."""

import numpy as np


def attention(q, k, v, mask, do, *, scale=None, bias=None, factor=1.0):
  """Returns softmax attention and its gradients in float64.

  The results are (out, dq, dk, dv), in the shapes of do, q, k, v, and dbias if
  there is a bias.

  Args:
    q, k, v: [B, L, H, Dh], [B, S, H, Dh], [B, S, H, Dv].
    mask: bool [B, S], True = key takes part. Without any key out is 0.
    do: [B, L, H, Dv], the gradient of the output.
    scale: factor of the logits; None = Dh**-0.5.
    bias: [H, L + S - 1] for distances 1 - L ... S - 1, or None.
    factor: factor of the weights, [B, H, L, S] or a number; 0 for dropped ones.
  """
  scale = np.shape(q)[-1] ** -0.5 if scale is None else scale
  # Heads first: np.matmul uses BLAS, einsum with batches does not.
  q, k, v, do = (np.swapaxes(np.asarray(x, np.float64), 1, 2)
                 for x in (q, k, v, do))
  keep_Bx1x1xS = np.asarray(mask)[:, None, None]
  logits = scale * (q @ _turned(k))
  length, keys = logits.shape[2:]
  # Index into the bias for each query and key.
  at = length - 1 + np.arange(keys) - np.arange(length)[:, None]
  if bias is not None:
    logits += np.asarray(bias, np.float64)[:, at]
  logits = np.where(keep_Bx1x1xS, logits, -np.inf)
  top = np.max(logits, axis=-1, keepdims=True)
  e = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
  total = e.sum(-1, keepdims=True)
  weights = e / np.where(total > 0, total, 1.0)
  dweights = factor * (do @ _turned(v))
  inner = (weights * dweights).sum(-1, keepdims=True)
  dlogits = weights * (dweights - inner)
  factored = factor * weights
  grads = (factored @ v, scale * (dlogits @ k), scale * (_turned(dlogits) @ q),
           _turned(factored) @ do)
  grads = tuple(np.swapaxes(x, 1, 2) for x in grads)
  if bias is None:
    return grads
  dbias = np.zeros((len(dlogits[0]), length + keys - 1))
  np.add.at(dbias, (slice(None), at), dlogits.sum(0))
  return *grads, dbias


def _turned(x):
  return np.swapaxes(x, -1, -2)
