"""The scan and its gradients in float64 numpy, token by token.

Tests and measurements compare the kernels with this independent version.
"""

import numpy as np


def scan(x, a, dh, *, mask=None, reverse=False, initial_state=None, dlast=None):
  """Returns (h, dx, da, last state, gradient of the initial state).

  Args:
    x, dh: [B, L, E], real or complex; masked tokens may hold anything.
    a: [E] or [B, L, E].
    mask: bool [B, L] or None.
    reverse, initial_state: see `lra.kernels.linear_scan`.
    dlast: the gradient of the last state, [B, E], or None.

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


def segments(x, a, dh, ids, count, *, mask=None, reverse=False,
             initial_state=None, dlast=None):
  """Runs `scan` on each segment of each row alone and joins the results.

  Args:
    x, a, dh, mask, reverse: see `scan`.
    ids: int [B, L]; ids outside of 0 to count - 1 are padding.
    count: N.
    initial_state, dlast: [B, N, E] or None.
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
