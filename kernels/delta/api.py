"""Delta rules: the public functions."""

import jax
import jax.numpy as jnp

from lra.kernels import call, checks, dispatch, xla
from lra.kernels.gated.api import Inputs, Options


def delta_rule(q, k, v, *, beta, log_decay=None, mask=None, reverse=False,
               scale=1.0, initial_state=None, return_state=False,
               kernel='auto'):
  """Computes the delta rule, with or without decay.

    S'_t = exp(log_decay_t) S_(t-1)
    S_t = S'_t + beta_t k_t^T (v_t - k_t S'_t),   out_t = scale q_t S_t

  Without decay this is DeltaNet (arXiv 2406.06484, section 2.2). With a decay
  for each head it is Gated DeltaNet (arXiv 2412.06464, equation 10), with a
  decay for each channel of the keys Kimi Delta Attention (arXiv 2510.26692,
  equation 1). If beta k.k lies between 0 and 2, the state cannot grow, also in
  bfloat16. For several steps per token (DeltaProduct), pass each step as a
  token of its own.

  Masked tokens leave the state unchanged; their outputs and gradients are
  exactly 0. Matmuls take operands in the dtype of q and sum in float32. Decays,
  states and the inverse of a chunk's matrix are float32. No exponential exceeds
  1, whatever the decay. Errors are those of `linear_attention`.

  Args:
    q, k: [B, L, H, N], float32 or bfloat16.
    v: [B, L, H, E], of the dtype of q.
    beta: float32 [B, L, H].
    log_decay: float32 [B, L, H] or [B, L, H, N], at most 0; None = 0.
    mask: bool [B, L], True = token; None = all True. No gradient.
    reverse: whether to start from the last token.
    scale: a Python number.
    initial_state: float32 [B, H, N, E], the state before the first token that
      is read; None = zeros.
    return_state: also return the state after all tokens, in the same form.
    kernel: one of `kernels.OPS['delta']`, or 'auto'.

  Returns:
    [B, L, H, E] in the dtype of q; with return_state (out, state).
  """
  checks.check_qkv(q, k, v, any_value_width=True)
  checks.check_float32('beta', beta, q.shape[:3], '[B, L, H]')
  return _run(Inputs(q, k, v, log_decay, None, beta), mask, reverse, scale,
              initial_state, return_state, kernel)


def general_delta_rule(q, k, v, a, b, *, log_decay=None, mask=None,
                       reverse=False, scale=1.0, initial_state=None,
                       return_state=False, kernel='auto'):
  """Computes a delta rule that may erase with other keys than it writes with.

    S_t = exp(log_decay_t) S_(t-1) + b_t^T (a_t S_(t-1)) + k_t^T v_t
    out_t = scale q_t S_t

  The state is multiplied by a diagonal matrix plus one of rank 1, as in RWKV-7
  (arXiv 2503.14456, equation 17). There a is minus the normalised removal key,
  and b is this key times a rate for each channel. Here a reads the state before
  the decay; in `delta_rule` k reads it after the decay. a and b are
  [B, L, H, N], of the dtype of q; the rest is as in `delta_rule`.
  """
  checks.check_qkv(q, k, v, any_value_width=True)
  for name, x in (('a', a), ('b', b)):
    checks.check_like(name, x, q)
  return _run(Inputs(q, k, v, log_decay, None, None, a, b), mask, reverse,
              scale, initial_state, return_state, kernel)


def _run(x, mask, reverse, scale, state, return_state, kernel):
  checks.check_mask(mask, x.q)
  if x.log_decay is not None:
    checks.check_log_decay(x.log_decay, jnp.shape(x.k))
  shape = *x.k.shape[:1], *x.k.shape[2:], x.v.shape[-1]
  if state is not None:
    checks.check_float32('initial_state', state, shape, '[B, H, N, E]')
  scale = checks.check_number('scale', scale)
  name = dispatch.resolve('delta', kernel, x.q.shape, x.q.dtype)

  def of_tokens(y):
    y = xla.keep(mask, y)
    return jnp.flip(y, 1) if reverse else y

  x = jax.tree.map(of_tokens, x)._replace(state=state)
  out, state = call.run('delta', name, Options(scale), x)
  out = xla.keep(mask, jnp.flip(out, 1) if reverse else out)
  return (out, state) if return_state else out
