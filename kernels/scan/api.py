"""Linear recurrence in each channel: the public function."""

import jax.numpy as jnp

from lra.kernels import call, checks, dispatch, xla
from lra.kernels.scan import segments
from lra.kernels.scan.passes import Inputs, Options


def linear_scan(x, *, a, mask=None, reverse=False, initial_state=None,
                return_state=False, segment_ids=None, num_segments=None,
                kernel='auto'):
  """Computes a linear recurrence of each channel.

    h_t = a_t h_(t-1) + x_t

  This is the scan of S5 (arXiv 2208.04933, section 2.2), LRU (arXiv
  2303.06349, equation 3) and of gated recurrences such as HGRN (arXiv
  2311.04823, equation 6). States are float32 or complex64. Arguments not listed
  here, and errors, are those of `linear_attention`.

  Masked tokens add nothing to the state, and their outputs and gradients are
  exactly 0. If `a` is constant, it still decays the state over masked tokens,
  as slopes do in `lightning_attention`. If each token has its own `a`, masked
  tokens leave the state unchanged.

  Args:
    x: [B, L, E], float32, bfloat16 or complex64.
    a: factors of the state, complex64 if x is, else float32 or the dtype of x:
      [E], constant, or [B, L, E], one for each token.
    reverse: whether to start from the last token: h_t = a_t h_(t+1) + x_t.
    initial_state: h before the first token of the scan, float32 or complex64
      [B, E]; None = zeros.
    return_state: also return the state after the last token of the scan.
    segment_ids: as in `linear_attention`, for every kernel.

  Returns:
    h, [B, L, E] in the dtype of x; with return_state (h, state).
  """
  checks.check_scanned(x, a)
  checks.check_mask(mask, x)
  checks.check_segments(segment_ids, num_segments, x.shape)
  lead = x.shape[:1] if segment_ids is None else (len(x), num_segments)
  if initial_state is not None:
    checks.check_state(
        'initial_state', initial_state, (*lead, x.shape[2]), x.dtype)
  name = dispatch.resolve('scan', kernel, x.shape, x.dtype)
  options = Options(bool(reverse), dispatch.interpret_params())
  dtype, keep, rows, state = x.dtype, mask, None, initial_state
  if segment_ids is not None:
    token = (segment_ids >= 0) & (segment_ids < num_segments)
    keep = token if mask is None else token & mask
  x = xla.keep(keep, x)
  if keep is not None and a.ndim == 3:
    a = jnp.where(keep[..., None], a, 1)
  if segment_ids is not None:
    rows = segments.rows(segment_ids, num_segments, options.reverse)
    x, a = segments.cut(rows, x, a, initial_state)
    state = None
  h, last = call.run('scan', name, options, Inputs(x, a, state))
  if rows is not None and return_state:
    last = segments.states(rows, h, initial_state)
  h = xla.keep(keep, h).astype(dtype)
  return (h, last) if return_state else h
