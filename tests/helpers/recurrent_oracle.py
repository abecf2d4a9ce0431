"""Building blocks of float64 oracles for recurrent mixers.

In every function `xp` is numpy or jax.numpy.
"""

import math

import jax
import numpy as np

from tests.helpers import mixer_oracle


def sigmoid(xp, x):
  return 1 / (1 + xp.exp(-x))


def silu(xp, x):
  return x * sigmoid(xp, x)


def gelu(xp, x, exact=False):
  if not exact:
    return x * (1 + xp.tanh((2 / math.pi)**0.5 * (x + 0.044715 * x**3))) / 2
  erf = np.vectorize(math.erf) if xp is np else jax.lax.erf
  return x * (1 + erf(x / 2**0.5)) / 2


def dense(x, p):
  return x @ p['kernel'] + p['bias']


def rms(xp, x, scale, eps=1e-5):
  return scale * x / xp.sqrt((x**2).mean(-1, keepdims=True) + eps)


def layer_norm(xp, x, eps):
  return rms(xp, x - x.mean(-1, keepdims=True), 1, eps)


def passes(direction):
  return (False, True) if direction == 'bidirectional' else (False,)


def both(direction, one_way):
  """Returns the sum of one_way(reverse) over the passes of `direction`."""
  return sum(map(one_way, passes(direction)))


def loop(xp, step, state, arrays, mask=None, reverse=False):
  """Applies step(state, *entries) -> (state, output) along axis 1 of `arrays`.

  Masked tokens leave the state as it is; their output is 0. Returns the
  outputs, stacked on axis 1.
  """
  def at(state, now):
    keep, *now = now
    new, y = step(state, *now)
    kept = lambda new, old: xp.where(
        keep.reshape(-1, *(1,) * (new.ndim - 1)), new, old)
    return jax.tree.map(kept, new, state), kept(y, 0)

  mask = np.ones(arrays[0].shape[:2], bool) if mask is None else mask
  arrays = [xp.moveaxis(xp.asarray(y), 1, 0) for y in (mask, *arrays)]
  if xp is not np:  # compiles one step, not all of them
    return xp.moveaxis(jax.lax.scan(at, state, arrays, reverse=reverse)[1],
                       0, 1)
  out = []
  for t in range(len(arrays[0]))[::-1 if reverse else 1]:
    state, y = at(state, [y[t] for y in arrays])
    out.append(y)
  return xp.stack(out[::-1 if reverse else 1], 1)


def recurrence(xp, a, u, reverse=False):
  """Computes h_t = a h_(t-1) + u_t over axis 1; `a` broadcasts to u[:, t]."""
  return loop(xp, lambda h, u: (a * h + u,) * 2, xp.zeros_like(u[:, 0]), [u],
              reverse=reverse)


def attention(xp, q, k, v, decay, mask, scale=1.0, reverse=False):
  """Computes S = decay_t S + k_t^T v_t and o_t = scale q_t S, token by token.

  q, k and decay are [B, L, H, N]; v and the result are [B, L, H, E].
  """
  def step(S, q, k, v, decay):
    S = decay[..., None] * S + k[..., None] * v[:, :, None]
    return S, scale * xp.einsum('bhn,bhne->bhe', q, S)

  S = xp.zeros((*q.shape[:1], *q.shape[2:], v.shape[-1]))
  return loop(xp, step, S, (q, k, v, decay), mask, reverse)


def gated_output(xp, o, x, p):
  """Computes W_o (RMSNorm(o) SiLU(W_g x))."""
  o = rms(xp, o, p['norm']['scale']) * silu(
      xp, mixer_oracle.heads(xp, x, p['gate']))
  return xp.einsum('blhe,hed->bld', o, p['out']['kernel'])


def convolve(xp, x, p, mask, reverse=False, centred=False):
  """Computes SiLU of a depthwise convolution of x [B, L, ...]; padding is 0.

  It reads earlier tokens, later tokens with `reverse`, both with `centred`.
  """
  shape, kernel = x.shape, p['kernel']
  x = xp.where(mask[..., None], x.reshape(*mask.shape, -1), 0)
  x = x[:, ::-1] if reverse else x
  length, width = shape[1], len(kernel)
  before = width // 2 if centred else width - 1
  padded = xp.pad(x, ((0, 0), (before, width - 1 - before), (0, 0)))
  y = sum(padded[:, i:i + length] * kernel[i] for i in range(width))
  y = y + p.get('bias', 0)
  y = silu(xp, y[:, ::-1] if reverse else y)
  return xp.where(mask[..., None], y, 0).reshape(shape)


def discrete(xp, rate, step, method):
  """Returns exp(A dt) and (exp(A dt) - 1) / A for `method` 'zoh'.

  Other methods give the bilinear versions. A is `rate` and dt is `step`.
  """
  if method == 'zoh':
    return xp.exp(rate * step), (xp.exp(rate * step) - 1) / rate
  return ((1 + rate * step / 2) / (1 - rate * step / 2),
          step / (1 - rate * step / 2))


def glu(xp, y, p, activation, exact=False):
  """Computes the gated output of S5, as in the paper and its code."""
  g = gelu(xp, y, exact)
  if activation == 'gelu':
    return g
  gate = sigmoid(xp, dense(g, p['gate']))
  return {'half_glu1': lambda: g, 'half_glu2': lambda: y,
          'full_glu': lambda: dense(g, p['value'])}[activation]() * gate
