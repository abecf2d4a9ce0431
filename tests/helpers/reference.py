"""The equation of every operation and its gradients in float64 numpy.

Tests and measurements compare the kernels with these independent versions.
"""

import numpy as np


def linear(q, k, v, mask, do, *, feature_map='elu1', normalize=True,
           scale=1.0, eps=1e-6, initial_state=None, dfinal=None):
  """Returns (out, dq, dk, dv, final state, gradient of the initial state).

  Masked tokens of q, k, v may hold anything. States and `dfinal`, the gradient
  of the final state, are pairs (S, z), [B, H, Dh, Dh] and [B, H, Dh].
  """
  q, k, v, do = (zero_masked(x, mask) for x in (q, k, v, do))
  keep_BxLx1x1 = np.asarray(mask)[:, :, None, None]
  phi_q, slope_q = _phi(feature_map, q)
  phi_k, slope_k = _phi(feature_map, k)
  phi_k = phi_k * keep_BxLx1x1
  before, after = ((0.0, 0.0) if x is None
                   else [np.asarray(y, np.float64) for y in x]
                   for x in (initial_state, dfinal))
  state = before[0] + np.einsum('blhd,blhe->bhde', phi_k, v)
  out = scale * np.einsum('blhd,bhde->blhe', phi_q, state)
  norm = np.ones_like(out[..., :1])
  total = before[1] + phi_k.sum(axis=1)
  if normalize:
    norm = np.einsum('blhd,bhd->blh', phi_q, total)[..., None] + eps
    norm = np.where(keep_BxLx1x1, norm, 1.0)
  out = out / norm
  dnum = scale * do / norm
  dnorm = -(do * out).sum(-1, keepdims=True) / norm * normalize
  dphi_q = np.einsum('blhe,bhde->blhd', dnum, state) + dnorm * total[:, None]
  dstate = after[0] + np.einsum('blhd,blhe->bhde', phi_q, dnum)
  dtotal = after[1] + (phi_q * dnorm).sum(axis=1)
  dphi_k = np.einsum('blhe,bhde->blhd', v, dstate) + dtotal[:, None]
  dv = np.einsum('blhd,bhde->blhe', phi_k, dstate)
  results = out, dphi_q * slope_q, dphi_k * slope_k, dv
  states = (state, total), (dstate, dtotal)
  return *(x * keep_BxLx1x1 for x in results), *states


def zero_masked(x_BxLxHxDh, mask):
  x_BxLxHxDh = np.asarray(x_BxLxHxDh, np.float64)
  return np.where(np.asarray(mask)[:, :, None, None], x_BxLxHxDh, 0.0)


def _phi(name, x):
  if name == 'elu1':
    low = np.exp(np.minimum(x, 0.0))
    return np.where(x > 0, x + 1.0, low), np.where(x > 0, 1.0, low)
  if name == 'relu':
    return np.maximum(x, 0.0), (x > 0) * 1.0
  return x, np.ones_like(x)


def simpletron(q, k, v, mask, do, *, scale=None, initial_state=None,
               dfinal=None):
  """Results are those of `linear`; states are [B, H, Dh, Dh], without z."""
  *results, (state, _), (dstate, _) = linear(
      q, k, v, mask, do, feature_map='identity', normalize=False,
      scale=np.shape(q)[1] ** -0.5 if scale is None else scale,
      **{name: None if x is None else (x, 0.0) for name, x in (
          ('initial_state', initial_state), ('dfinal', dfinal))})
  return *results, state, dstate


def lightning(q, k, v, mask, do, *, slopes, scale=1.0, initial_state=None,
              dfinal=None):
  """Results are those of `linear`; states are [B, H, Dh, Dh], without z.

  The state decays at masked tokens too.
  """
  *results, _, state, dstate = gated(
      *(zero_masked(x, mask) for x in (q, k, v)),
      np.broadcast_to(-np.asarray(slopes, np.float64), np.shape(q)[:3]),
      zero_masked(do, mask), scale=scale, initial_state=initial_state,
      dfinal=dfinal)
  return *(zero_masked(x, mask) for x in results), state, dstate


def softmax(q, k, v, mask, do, *, scale=None, bias=None, factor=1.0):
  """Returns (out, dq, dk, dv), and dbias if there is a bias.

  `factor` multiplies the weights, [B, H, L, S]; it is 0 for dropped ones.
  """
  scale = np.shape(q)[-1] ** -0.5 if scale is None else scale
  # Heads first: np.matmul uses BLAS, einsum with batches does not.
  q, k, v, do = (np.swapaxes(np.asarray(x, np.float64), 1, 2)
                 for x in (q, k, v, do))
  keep_Bx1x1xS = np.asarray(mask)[:, None, None]
  logits = scale * (q @ _turned(k))
  length, keys = logits.shape[2:]
  # Index into the bias for each query and key.
  at = length - 1 + np.arange(keys) - np.arange(length)[:, None]
  if bias is not None:
    logits += np.asarray(bias, np.float64)[:, at]
  logits = np.where(keep_Bx1x1xS, logits, -np.inf)
  top = np.max(logits, axis=-1, keepdims=True)
  e = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
  total = e.sum(-1, keepdims=True)
  weights = e / np.where(total > 0, total, 1.0)
  dweights = factor * (do @ _turned(v))
  inner = (weights * dweights).sum(-1, keepdims=True)
  dlogits = weights * (dweights - inner)
  factored = factor * weights
  grads = (factored @ v, scale * (dlogits @ k), scale * (_turned(dlogits) @ q),
           _turned(factored) @ do)
  grads = tuple(np.swapaxes(x, 1, 2) for x in grads)
  if bias is None:
    return grads
  dbias = np.zeros((len(dlogits[0]), length + keys - 1))
  np.add.at(dbias, (slice(None), at), dlogits.sum(0))
  return *grads, dbias


def _turned(x):
  return np.swapaxes(x, -1, -2)


def gated(q, k, v, log_decay, do, *, scale=1.0, mask=None, reverse=False,
          initial_state=None, dfinal=None):
  """Returns (o, dq, dk, dv, dlog_decay, final state, dinitial state).

  Masked tokens may hold anything. `dfinal` is the gradient of the final state.
  """
  b, length, heads, width = v.shape
  groups, features = q.shape[2:]
  token = np.ones((b, length), bool) if mask is None else np.asarray(mask)
  q, k, v, g, do = (
      np.where(token.reshape(b, length, *(1,) * (x.ndim - 2)), x, 0).astype(
          np.float64) for x in (q, k, v, log_decay, do))
  q, k = (np.repeat(x, heads // groups, axis=2) for x in (q, k))
  gate = np.broadcast_to(np.exp(g if g.ndim == 4 else g[..., None]), q.shape)
  order = list(range(length))[::-1 if reverse else 1]
  zeros = np.zeros((b, heads, features, width))
  state = zeros if initial_state is None else zeros + initial_state
  before = np.zeros((length, *zeros.shape))
  o, dq, dk, dv, dgate = (
      np.zeros(x.shape) for x in (v, q, k, v, gate))
  for t in order:
    before[t] = state
    state = (gate[:, t, :, :, None] * state
             + k[:, t, :, :, None] * v[:, t, :, None])
    o[:, t] = scale * np.einsum('bhd,bhde->bhe', q[:, t], state)
    dq[:, t] = scale * np.einsum('bhe,bhde->bhd', do[:, t], state)
  final = state
  dstate = zeros if dfinal is None else zeros + dfinal
  for t in order[::-1]:
    dstate = dstate + scale * q[:, t, :, :, None] * do[:, t, :, None]
    dk[:, t] = np.einsum('bhde,bhe->bhd', dstate, v[:, t])
    dv[:, t] = np.einsum('bhd,bhde->bhe', k[:, t], dstate)
    dgate[:, t] = (before[t] * dstate).sum(-1)
    dstate = gate[:, t, :, :, None] * dstate
  dg = gate * dgate
  dg = dg if g.ndim == 4 else dg.sum(-1)
  dq, dk = (x.reshape(b, length, groups, -1, features).sum(3)
            for x in (dq, dk))
  keep = token[..., None, None]
  return (*(np.where(keep, x, 0) for x in (o, dq, dk, dv)),
          np.where(keep if g.ndim == 4 else keep[..., 0], dg, 0),
          final, dstate)


def delta_rule(q, k, v, do, *, beta, log_decay=None, mask=None, reverse=False,
               scale=1.0, initial_state=None, dlast=None):
  """Returns (out, last state, gradients by name), token by token.

  Masked tokens may hold anything. `dlast` is the gradient of the last state.
  """
  given = {'q': q, 'k': k, 'v': v, 'beta': beta, 'log_decay': log_decay}
  return _delta_rule(_Delta, given, do, mask, reverse, scale, initial_state,
                     dlast)


def general_delta_rule(q, k, v, a, b, do, *, log_decay=None, mask=None,
                       reverse=False, scale=1.0, initial_state=None,
                       dlast=None):
  """Returns (out, last state, gradients by name); see `delta_rule`."""
  given = {'q': q, 'k': k, 'v': v, 'a': a, 'b': b, 'log_decay': log_decay}
  return _delta_rule(_General, given, do, mask, reverse, scale, initial_state,
                     dlast)


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


def _delta_rule(rule, given, do, mask, reverse, scale, initial_state, dlast):
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


def scan(x, a, dh, *, mask=None, reverse=False, initial_state=None, dlast=None):
  """Returns (h, dx, da, last state, gradient of the initial state).

  Masked tokens may hold anything. `dlast` is the gradient of the last state.
  Gradients follow JAX: without conjugation, da is sum h_(t-1) dh.
  """
  kind = np.complex128 if np.iscomplexobj(x) else np.float64
  batch, length, width = x.shape
  token = np.ones((batch, length), bool) if mask is None else np.asarray(mask)
  each = np.broadcast_to(np.asarray(a, kind), x.shape).copy()
  if np.ndim(a) == 3:
    each[~token] = 1
  x, dh = (np.where(token[..., None], y, 0).astype(kind) for y in (x, dh))
  order = list(range(length))[::-1 if reverse else 1]
  state = np.zeros((batch, width), kind)
  if initial_state is not None:
    state = state + initial_state
  h, before = np.zeros_like(x), np.zeros_like(x)
  for t in order:
    before[:, t] = state
    state = each[:, t] * state + x[:, t]
    h[:, t] = state
  last = state
  back = np.zeros((batch, width), kind)
  if dlast is not None:
    back = back + dlast
  dx, da = np.zeros_like(x), np.zeros_like(x)
  for t in order[::-1]:
    dx[:, t] = dh[:, t] + back
    da[:, t] = before[:, t] * dx[:, t]
    back = each[:, t] * dx[:, t]
  h, dx = (np.where(token[..., None], y, 0) for y in (h, dx))
  if np.ndim(a) == 3:
    da = np.where(token[..., None], da, 0)
  else:
    da = da.sum((0, 1))
  return h, dx, da, last, back


def scan_segments(x, a, dh, ids, count, *, mask=None, reverse=False,
                  initial_state=None, dlast=None):
  """Runs `scan` on each segment of each row alone and joins the results.

  There are N = `count` segments, `initial_state` and `dlast` are [B, N, E].
  """
  h, dx = np.zeros_like(x), np.zeros_like(x)
  da = np.zeros_like(a)
  shape = (len(x), count, x.shape[2])
  last, first = (np.zeros(shape, x.dtype) for _ in range(2))
  for b, n in np.ndindex(len(x), count):
    at = np.flatnonzero(ids[b] == n)
    given = {
        name: None if y is None else y[b:b + 1, n]
        for name, y in (('initial_state', initial_state), ('dlast', dlast))}
    if not at.size:
      last[b, n] = 0 if initial_state is None else initial_state[b, n]
      first[b, n] = 0 if dlast is None else dlast[b, n]
      continue
    part = slice(b, b + 1), slice(at[0], at[-1] + 1)
    token = np.ones_like(ids[part], bool) if mask is None else mask[part]
    own = scan(x[part], a if a.ndim == 1 else a[part], dh[part], mask=token,
               reverse=reverse, **given)
    h[part], dx[part] = own[:2]
    if a.ndim == 1:
      da += own[2]
    else:
      da[part] = own[2]
    last[b, n], first[b, n] = own[3][0], own[4][0]
  return h, dx, da, last, first


def norm_project(o, weight, bias, dy, eps=1e-6):
  """Returns y = (o / rms(o)) W + b, and the gradients of o, weight and bias."""
  o, weight, bias, dy = (np.asarray(x, np.float64)
                         for x in (o, weight, bias, dy))
  rms = np.sqrt(np.mean(o**2, axis=-1, keepdims=True) + eps)
  normed = o / rms
  dnormed = dy @ weight.T
  drms = -np.sum(dnormed * o, axis=-1, keepdims=True) / rms**2
  do = dnormed / rms + drms * o / (rms * o.shape[-1])
  dweight = np.einsum('ble,bld->ed', normed, dy)
  return normed @ weight + bias, do, dweight, dy.sum((0, 1))
