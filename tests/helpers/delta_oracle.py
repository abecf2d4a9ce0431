"""Building blocks of float64 oracles for mixers with a delta rule.

In every function `xp` is numpy or jax.numpy, and `p` holds parameters.
"""

import jax
import numpy as np

from tests.helpers.state_space_oracle import sigmoid


def silu(xp, x):
  return x * sigmoid(xp, x)


def softplus(xp, x):
  return xp.logaddexp(x, xp.zeros_like(x))


def heads(xp, x, p):
  """Projects x [B, L, D] to heads [B, L, H, W]; the kernel is [D, H, W]."""
  return xp.einsum('bld,dhw->blhw', x, p['kernel'])


def short(xp, y, p, mask, reverse):
  """Computes SiLU of a depthwise causal convolution of y [B, L, H, W].

  With `reverse` it reads later tokens. Without parameters it is SiLU alone.
  """
  if p is None:
    return silu(xp, y)
  shape, taps = y.shape, p['kernel'].shape[0]
  y = xp.where(mask[..., None], y.reshape(*shape[:2], -1), 0)
  total = xp.zeros_like(y)
  for back in range(min(taps, shape[1])):
    cut = shape[1] - back
    none = xp.zeros_like(y[:, cut:])
    seen = xp.concatenate(
        [y[:, back:], none] if reverse else [none, y[:, :cut]], 1)
    total = total + p['kernel'][taps - 1 - back] * seen
  return silu(xp, total).reshape(shape)


def unit(xp, x, eps=1e-6):
  return x / xp.sqrt((x**2).sum(-1, keepdims=True) + eps)


def passes(direction):
  return (False, True) if direction == 'bidirectional' else (False,)


def recurrence(xp, step, state, arrays, mask, reverse):
  """Runs a recurrence token by token; masked tokens do not change the state.

  Args:
    xp: numpy or jax.numpy.
    step: function (state, entries [B, H, ...] of each array at a token) ->
      (next state, output [B, H, E]).
    state: initial state, [B, H, N, E].
    arrays: list of arrays [B, L, H, ...].
    mask: bool [B, L].
    reverse: whether to begin at the last token.

  Returns:
    The outputs, [B, L, H, E].
  """
  def at(state, token):
    keep, *arrays = token
    after, o = step(state, *arrays)
    return xp.where(keep[:, None, None, None], after, state), o

  tokens = [xp.moveaxis(y, 1, 0) for y in (mask, *arrays)]
  if xp is not np:
    return xp.moveaxis(
        jax.lax.scan(at, state, tokens, reverse=reverse)[1], 0, 1)
  out = []
  for t in range(mask.shape[1])[::-1 if reverse else 1]:
    state, o = at(state, [y[t] for y in tokens])
    out.append(o)
  return np.stack(out[::-1] if reverse else out, 1)


def delta_step(xp, state, k, v, beta):
  """Applies one step of the delta rule to states [B, H, N, E]."""
  held = xp.einsum('bhn,bhne->bhe', k, state)
  return state + xp.einsum('bhn,bhe->bhne', k, beta[..., None] * (v - held))


def rms_norm(xp, o, scale, eps=1e-5):
  return o / xp.sqrt((o**2).mean(-1, keepdims=True) + eps) * scale


def delta_mixer(xp, p, x, mask, direction, *, steps=1, log_decay=None,
                gate=None, beta_scale=1.0):
  """Computes the outputs [B, L, D] of a mixer of `lra.nn.delta_mixer`.

  Args:
    xp: numpy or jax.numpy.
    p: parameters.
    x: inputs [B, L, D].
    mask: bool [B, L].
    direction: the mixer's field, such as 'bidirectional'.
    steps: number of delta-rule steps per token.
    log_decay: [B, L, H] or [B, L, H, N]; None for no decay.
    gate: factors [B, L, H, E] of the normalised heads, or None.
    beta_scale: factor of the sigmoid that gives beta.
  """
  H = p['query']['kernel'].shape[1]
  beta = beta_scale * sigmoid(xp, heads(xp, x, p['beta']))[..., 0]
  if log_decay is None:
    log_decay = xp.zeros(x.shape[:2] + (H,))
  if log_decay.ndim == 3:
    log_decay = log_decay[..., None]
  total = 0
  for reverse in passes(direction):
    q, k, v = (
        short(xp, heads(xp, x, p[name]), p.get(f'{name}_convolution'), mask,
              reverse) for name in ('query', 'key', 'value'))
    N, E = q.shape[-1], v.shape[-1]
    q, k = unit(xp, q), unit(xp, k)

    def step(state, q, k, v, beta, log_decay):
      state = xp.exp(log_decay)[..., None] * state
      for n in range(steps):
        own = slice(n * H, (n + 1) * H)
        state = delta_step(xp, state, k[:, own], v[:, own], beta[:, own])
      return state, xp.einsum('bhn,bhne->bhe', q, state) * q.shape[-1]**-0.5

    total = total + recurrence(
        xp, step, xp.zeros((len(x), H, N, E)), (q, k, v, beta, log_decay), mask,
        reverse)
  o = rms_norm(xp, total, p['norm']['scale'])
  o = o if gate is None else o * gate
  return xp.einsum('blhe,hed->bld', o, p['out']['kernel'])


def decay(xp, step, p):
  """Computes the log decay -e^A softplus(step + dt).

  `step` is [B, L, H] or [B, L, H, N], as is the result.
  """
  rate = xp.exp(p['log_rate'])
  rate = rate[:, None] if step.ndim == 4 else rate
  return -rate * softplus(xp, step + p['dt_bias'])
