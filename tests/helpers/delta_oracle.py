"""Parts of the float64 oracles of mixers with a delta rule."""

import jax
import numpy as np

from tests.helpers.state_space_oracle import sigmoid


def silu(xp, x):
  return x * sigmoid(xp, x)


def softplus(xp, x):
  return xp.logaddexp(x, xp.zeros_like(x))


def heads(xp, x, p):
  """[B, L, D] -> [B, L, H, W] by a kernel [D, H, W]."""
  y = xp.einsum('bld,dhw->blhw', x, p['kernel'])
  return y + p['bias'] if 'bias' in p else y


def short(xp, y, p, mask, reverse):
  """A short convolution of each channel of [B, L, H, W], then SiLU."""
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
  """Outputs of a recurrence, token by token; masked tokens change nothing.

  Args:
    xp: numpy or jax.numpy.
    step: function of the state and each array's entries [B, H, ...] at a token:
      (next state, outputs [B, H, E]).
    state: the first state, [B, H, N, E].
    arrays: [B, L, H, ...] each.
    mask: bool [B, L].
    reverse: whether to begin at the last token.
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
  """One step of the delta rule of states [B, H, N, E]."""
  held = xp.einsum('bhn,bhne->bhe', k, state)
  return state + xp.einsum('bhn,bhe->bhne', k, beta[..., None] * (v - held))


def rms_norm(xp, o, scale, eps=1e-5):
  return o / xp.sqrt((o**2).mean(-1, keepdims=True) + eps) * scale


def delta_mixer(xp, p, x, mask, direction, *, steps=1, log_decay=None,
                gate=None, beta_scale=1.0):
  """The mixers of `lra.nn.delta_mixer`, with `steps` of the rule for a token.

  Args:
    xp: numpy or jax.numpy.
    p: parameters.
    x, mask: [B, L, D], bool [B, L].
    direction: of the mixer.
    steps: steps of the rule for a token.
    log_decay: [B, L, H] or [B, L, H, N], or None.
    gate: [B, L, H, E] that multiplies the normalised heads, or None.
    beta_scale: the largest beta.
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
  """-e^A softplus(step + dt), step [B, L, H] or [B, L, H, N]."""
  rate = xp.exp(p['log_rate'])
  rate = rate[:, None] if step.ndim == 4 else rate
  return -rate * softplus(xp, step + p['dt_bias'])
