"""Gated linear attention: the public function."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels import call, checks, dispatch, xla


class Options(NamedTuple):
  scale: float = 1.0
  interpret: Any = None


class Inputs(NamedTuple):
  """Arrays of `gated_linear_attention`, 0 at masked tokens.

  `delta_rule` has beta, `general_delta_rule` has a and b.
  """
  q: jax.Array
  k: jax.Array
  v: jax.Array
  log_decay: jax.Array | None
  state: jax.Array | None
  beta: jax.Array | None = None
  a: jax.Array | None = None
  b: jax.Array | None = None


def gated_linear_attention(q, k, v, *, log_decay, scale=1.0, mask=None,
                           reverse=False, initial_state=None,
                           return_state=False, kernel='auto'):
  """Computes linear attention whose state decays by a gate of each token.

    S_t = diag(exp(log_decay_t)) S_(t-1) + k_t^T v_t,   o_t = scale * q_t S_t

  With a gate for each head this is RetNet (arXiv 2307.08621), gated RFA (arXiv
  2103.02143) and Mamba-2 (arXiv 2405.21060, section 6). With a gate for each
  channel it is GLA (arXiv 2312.06635) and HGRN2 (arXiv 2404.07904).

  Masked tokens leave the state unchanged; their outputs and gradients are
  exactly 0. A sequence may be split in two without changing the result, if the
  second part starts from the state of the first. Matmuls take operands in the
  dtype of q and sum in float32; gates and states are float32. Errors are those
  of `linear_attention`.

  Args:
    q, k: [B, L, G, N], float32 or bfloat16. G divides H: groups of H / G
      adjacent heads share queries and keys.
    v: [B, L, H, E], in the dtype of q.
    log_decay: float32 [B, L, H], or [B, L, H, N] for a gate of each channel; at
      most 0. Below -104 (also -inf) a token forgets all before it, since
      exp(-104) is 0 in float32.
    scale: a Python number.
    mask: bool [B, L], True = token; None = all True. No gradient.
    reverse: whether to start from the last token: S_(t+1) in place of S_(t-1).
    initial_state: S before the first token that is read, float32
      [B, H, N, E]; None = zeros.
    return_state: also return the state after all tokens.
    kernel: one of `kernels.OPS['gated']`, or 'auto'.

  Returns:
    o, [B, L, H, E] in the dtype of q; with return_state (o, state).
  """
  checks.check_gated(q, k, v, log_decay)
  checks.check_mask(mask, q)
  batch, length, heads, width = v.shape
  features = q.shape[3]
  if initial_state is not None:
    checks.check_float32('initial_state', initial_state,
                         (batch, heads, features, width), '[B, H, N, E]')
  name = dispatch.resolve(
      'gated', kernel, (batch, length, heads, features), q.dtype,
      value_width=width, channels=log_decay.ndim == 4, groups=q.shape[2])
  options = Options(checks.check_number('scale', scale),
                    dispatch.interpret_params())
  if log_decay.ndim == 4:
    # Gates multiply q and k before the matmul of both, and differ between the
    # heads of a group. So every head needs its own q and k.
    q, k = (jnp.repeat(x, heads // x.shape[2], axis=2) for x in (q, k))
  arrays = [xla.keep(mask, x) for x in (q, k, v, log_decay)]
  if reverse:
    arrays = [jnp.flip(x, 1) for x in arrays]
  o, state = call.run('gated', name, options, Inputs(*arrays, initial_state))
  o = xla.keep(mask, jnp.flip(o, 1) if reverse else o)
  return (o, state) if return_state else o
