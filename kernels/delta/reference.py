"""The delta rules and their gradients in float64 numpy, token by token.

Tests and measurements compare the kernels with this independent version.
"""

import numpy as np


def delta_rule(q, k, v, do, *, beta, log_decay=None, mask=None, reverse=False,
               scale=1.0, initial_state=None, dlast=None):
  """Returns (out, last state, gradients by name) of `lra.kernels.delta_rule`.

  Args:
    q, k, v, beta, log_decay, mask, reverse, scale, initial_state: as in
      `lra.kernels.delta_rule`; masked tokens may hold anything.
    do: [B, L, H, E], gradient of the outputs.
    dlast: gradient of the last state, or None.
  """
  given = {'q': q, 'k': k, 'v': v, 'beta': beta, 'log_decay': log_decay}
  return _run(_Delta, given, do, mask, reverse, scale, initial_state, dlast)


def general_delta_rule(q, k, v, a, b, do, *, log_decay=None, mask=None,
                       reverse=False, scale=1.0, initial_state=None,
                       dlast=None):
  """Returns (out, last state, gradients) of `lra.kernels.general_delta_rule`.

  See `delta_rule` for the arguments.
  """
  given = {'q': q, 'k': k, 'v': v, 'a': a, 'b': b, 'log_decay': log_decay}
  return _run(_General, given, do, mask, reverse, scale, initial_state, dlast)


class _Delta:

  @staticmethod
  def step(t, state):
    kept = t['factor'][:, None] * state
    return kept + np.outer(t['k'], t['beta'] * (t['v'] - t['k'] @ kept))

  @staticmethod
  def back(t, state, dstate):
    """Returns gradients of a token's operands and of the state before it."""
    kept = t['factor'][:, None] * state
    miss = t['v'] - t['k'] @ kept
    drow = t['k'] @ dstate
    dmiss = t['beta'] * drow
    dkept = dstate - np.outer(t['k'], dmiss)
    return {
        'k': dstate @ (t['beta'] * miss) - kept @ dmiss, 'v': dmiss,
        'beta': drow @ miss, 'log_decay': (dkept * kept).sum(1),
    }, t['factor'][:, None] * dkept


class _General:

  @staticmethod
  def step(t, state):
    return (t['factor'][:, None] * state + np.outer(t['b'], t['a'] @ state)
            + np.outer(t['k'], t['v']))

  @staticmethod
  def back(t, state, dstate):
    kept, read = t['factor'][:, None] * state, t['a'] @ state
    dread = t['b'] @ dstate
    return {
        'k': dstate @ t['v'], 'v': t['k'] @ dstate, 'b': dstate @ read,
        'a': state @ dread, 'log_decay': (dstate * kept).sum(1),
    }, t['factor'][:, None] * dstate + np.outer(t['a'], dread)


def _run(rule, given, do, mask, reverse, scale, initial_state, dlast):
  given = {name: np.asarray(y, np.float64)
           for name, y in given.items() if y is not None}
  do = np.asarray(do, np.float64)
  batch, length, heads, width = given['v'].shape
  channels = given['q'].shape[-1]
  token = np.ones((batch, length), bool) if mask is None else np.asarray(mask)
  out = np.zeros(given['v'].shape)
  grads = {name: np.zeros(y.shape) for name, y in given.items()}
  shape = batch, heads, channels, width
  last, dfirst = np.zeros(shape), np.zeros(shape)
  for n, h in np.ndindex(batch, heads):
    state = np.zeros((channels, width))
    if initial_state is not None:
      state = np.asarray(initial_state[n, h], np.float64)
    order = [i for i in range(length)[::-1 if reverse else 1] if token[n, i]]
    seen = []
    for i in order:
      t = {name: y[n, i, h] for name, y in given.items()}
      t['factor'] = np.exp(np.broadcast_to(t.get('log_decay', 0), channels))
      after = rule.step(t, state)
      out[n, i, h] = scale * t['q'] @ after
      seen.append((t, state, after))
      state = after
    last[n, h] = state
    dstate = np.zeros((channels, width))
    if dlast is not None:
      dstate = dstate + dlast[n, h]
    for i, (t, before, after) in zip(order[::-1], seen[::-1], strict=True):
      dstate = dstate + scale * np.outer(t['q'], do[n, i, h])
      of, dbefore = rule.back(t, before, dstate)
      of['q'] = scale * after @ do[n, i, h]
      for name, grad in grads.items():
        own = of[name]
        grad[n, i, h] = own.sum() if np.ndim(t[name]) < np.ndim(own) else own
      dstate = dbefore
    dfirst[n, h] = dstate
  return out, last, {**grads, 'initial_state': dfirst}
