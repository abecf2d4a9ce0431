"""The equation of SimpleTRON and its gradients in float64 numpy."""

import numpy as np

from lra.kernels.linear.reference import zero_masked


def attention(q, k, v, mask, do, *, scale=None, initial_state=None,
              dfinal=None):
  """Returns SimpleTRON and its gradients in float64; `scale` None is L**-0.5.

  Arguments and results are those of `linear.reference.attention`, but states
  are [B, H, Dh, Dh], without a normaliser.
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
