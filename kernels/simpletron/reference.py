"""The equation of SimpleTRON and its gradients in float64 numpy."""

import numpy as np

from kernels.linear.reference import zero_masked


def attention(q, k, v, mask, do, *, scale=None):
  """(out, dq, dk, dv), [B, L, H, Dh] float64 each.

  Args:
    q, k, v: [B, L, H, Dh]; masked tokens may hold anything.
    mask: bool [B, L], True = token.
    do: [B, L, H, Dh], the gradient of the output.
    scale: L**-0.5 unless given.
  """
  scale = np.shape(q)[1] ** -0.5 if scale is None else scale
  q, k, v, do = (zero_masked(x, mask) for x in (q, k, v, do))
  state = scale * np.einsum('blhd,blhe->bhde', k, v)
  dstate = scale * np.einsum('blhd,blhe->bhde', q, do)
  return (
    np.einsum('blhd,bhde->blhe', q, state),
    np.einsum('blhe,bhde->blhd', do, state),
    np.einsum('blhe,bhde->blhd', v, dstate),
    np.einsum('blhd,bhde->blhe', k, dstate),
  )
