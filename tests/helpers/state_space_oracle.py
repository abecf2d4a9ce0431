"""Building blocks of float64 oracles for state space models.

In every function `xp` is numpy or jax.numpy.
"""

import math

import numpy as np


def discrete(xp, rate, step, method):
  """Returns exp(A dt) and (exp(A dt) - 1) / A for `method` 'zoh'.

  Other methods give the bilinear versions. A is `rate` and dt is `step`.
  """
  if method == 'zoh':
    return xp.exp(rate * step), (xp.exp(rate * step) - 1) / rate
  return ((1 + rate * step / 2) / (1 - rate * step / 2),
          step / (1 - rate * step / 2))


def recurrence(xp, a, u, reverse=False):
  """Computes h_t = a h_(t-1) + u_t over axis 1, token by token.

  Args:
    xp: numpy or jax.numpy.
    a: factors, which broadcast to u[:, t].
    u: [B, L, ...].
    reverse: whether to begin at the last token.
  """
  if xp is not np:  # compiles one step, not all of them
    import jax
    step = lambda h, now: (a * h + now,) * 2
    return xp.moveaxis(jax.lax.scan(
        step, xp.zeros_like(u[:, 0]), xp.moveaxis(u, 1, 0), reverse=reverse)[1],
                       0, 1)
  h, hs = xp.zeros_like(u[:, 0]), []
  for t in range(u.shape[1])[::-1 if reverse else 1]:
    h = a * h + u[:, t]
    hs.append(h)
  return xp.stack(hs[::-1 if reverse else 1], 1)


def sigmoid(xp, x):
  return 1 / (1 + xp.exp(-x))


def gelu(xp, x, exact=False):
  if not exact:
    return x * (1 + xp.tanh((2 / math.pi)**0.5 * (x + 0.044715 * x**3))) / 2
  if xp is np:
    return x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2
  import jax
  return x * (1 + jax.lax.erf(x / 2**0.5)) / 2


def dense(x, p):
  return x @ p['kernel'] + p['bias']


def glu(xp, y, p, activation, exact=False):
  """Computes the gated output of S5, as in the paper and its code."""
  g = gelu(xp, y, exact)
  if activation == 'gelu':
    return g
  gate = sigmoid(xp, dense(g, p['gate']))
  return {'half_glu1': lambda: g, 'half_glu2': lambda: y,
          'full_glu': lambda: dense(g, p['value'])}[activation]() * gate
