"""The equation of SimpleTRON and its gradients in float64 numpy."""

import numpy as np

from kernels.linear.reference import zero_masked


def attention(q, k, v, mask, do, *, scale=None, initial_state=None,
              dfinal=None):
  """Returns SimpleTRON and its gradients in float64.

  The results are (out, dq, dk, dv, final state, gradient of the initial state).

  Args:
    q, k, v: [B, L, H, Dh]; masked tokens may hold anything.
    mask: bool [B, L], True = token.
    do: [B, L, H, Dh], the gradient of the output.
    scale: a number; None = L**-0.5.
    initial_state, dfinal: [B, H, Dh, Dh], the initial sum and the gradient of
      the final one; None for zeros.
  """
  scale = np.shape(q)[1] ** -0.5 if scale is None else scale
  q, k, v, do = (zero_masked(x, mask) for x in (q, k, v, do))
  before, after = (0.0 if x is None else np.asarray(x, np.float64)
                   for x in (initial_state, dfinal))
  state = before + np.einsum('blhd,blhe->bhde', k, v)
  dstate = after + scale * np.einsum('blhd,blhe->bhde', q, do)
  return (scale * np.einsum('blhd,bhde->blhe', q, state),
          scale * np.einsum('blhe,bhde->blhd', do, state),
          np.einsum('blhe,bhde->blhd', v, dstate),
          np.einsum('blhd,bhde->blhe', k, dstate), state, dstate)
