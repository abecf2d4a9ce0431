"""Building blocks of float64 oracles for mixers with gated linear attention.

In every function `xp` is numpy or jax.numpy.
"""

import numpy as np

from tests.helpers.state_space_oracle import sigmoid


def attention(xp, q, k, v, decay, mask, scale=1.0, reverse=False):
  """Computes S = decay_t S + k_t^T v_t and o_t = scale q_t S, token by token.

  Args:
    xp: numpy or jax.numpy.
    q, k, decay: [B, L, H, N].
    v: [B, L, H, E].
    mask: bool [B, L]; masked (False) tokens are skipped.
    scale: a number.
    reverse: whether to begin at the last token.

  Returns:
    The outputs o, [B, L, H, E].
  """
  def step(S, now):
    q, k, v, decay, token = now
    new = decay[..., None] * S + k[..., None] * v[:, :, None]
    S = xp.where(token[:, None, None, None], new, S)
    o = scale * xp.einsum('bhn,bhne->bhe', q, S)
    return S, xp.where(token[:, None, None], o, 0)

  S = xp.zeros((*q.shape[:1], *q.shape[2:], v.shape[-1]))
  return loop(xp, step, S, (q, k, v, decay, mask), reverse)


def loop(xp, step, state, arrays, reverse):
  """Applies step(state, entries) -> (state, output) along axis 1 of `arrays`.

  Returns the outputs, stacked on axis 1.
  """
  arrays = [xp.moveaxis(xp.asarray(y), 1, 0) for y in arrays]
  if xp is not np:  # compiles one step, not all of them
    import jax
    return xp.moveaxis(jax.lax.scan(step, state, arrays, reverse=reverse)[1],
                       0, 1)
  out = []
  for t in range(len(arrays[0]))[::-1 if reverse else 1]:
    state, y = step(state, [y[t] for y in arrays])
    out.append(y)
  return xp.stack(out[::-1 if reverse else 1], 1)


def both(direction, one_way):
  """Returns one_way(False); adds one_way(True) if bidirectional."""
  o = one_way(False)
  return o + one_way(True) if direction == 'bidirectional' else o


def silu(xp, x):
  return x * sigmoid(xp, x)


def rms(xp, x, scale, eps=1e-5):
  return scale * x / xp.sqrt((x**2).mean(-1, keepdims=True) + eps)


def layer_norm(xp, x, eps):
  x = x - x.mean(-1, keepdims=True)
  return x / xp.sqrt((x**2).mean(-1, keepdims=True) + eps)


def project(xp, x, dense, bias=False):
  """Projects [B, L, D] to heads, [B, L, H, W], with a bias if one is due."""
  y = xp.einsum('bld,dhw->blhw', x, dense['kernel'])
  return y + dense['bias'] if bias else y


def gated_output(xp, o, x, p):
  """Computes W_o (RMSNorm(o) SiLU(W_g x))."""
  o = rms(xp, o, p['norm']['scale']) * silu(xp, project(xp, x, p['gate']))
  return xp.einsum('blhe,hed->bld', o, p['out']['kernel'])


def convolve(xp, x, kernel, mask, reverse, bias=0, centred=False):
  """Computes SiLU of a depthwise convolution of x [B, L, W]; padding is 0.

  It reads earlier tokens, later tokens with `reverse`, both with `centred`.
  """
  x = xp.where(mask[..., None], x, 0)
  x = x[:, ::-1] if reverse else x
  length, width = x.shape[1], len(kernel)
  before = width // 2 if centred else width - 1
  padded = xp.pad(x, ((0, 0), (before, width - 1 - before), (0, 0)))
  y = sum(padded[:, i:i + length] * kernel[i] for i in range(width)) + bias
  y = silu(xp, y[:, ::-1] if reverse else y)
  return xp.where(mask[..., None], y, 0)
