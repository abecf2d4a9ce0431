"""RMS norm and projection in float64 numpy, with gradients."""

import numpy as np


def norm_project(o, weight, bias, dy, eps=1e-6):
  """Computes y = (o / rms(o)) W + b in float64.

  Returns y [B, L, D] and, from the gradient dy of y, the gradients of o
  [B, L, E], weight [E, D] and bias [D].
  """
  o, weight, bias, dy = (np.asarray(x, np.float64)
                         for x in (o, weight, bias, dy))
  rms = np.sqrt(np.mean(o**2, axis=-1, keepdims=True) + eps)
  normed = o / rms
  dnormed = dy @ weight.T
  drms = -np.sum(dnormed * o, axis=-1, keepdims=True) / rms**2
  do = dnormed / rms + drms * o / (rms * o.shape[-1])
  dweight = np.einsum('ble,bld->ed', normed, dy)
  return normed @ weight + bias, do, dweight, dy.sum((0, 1))
