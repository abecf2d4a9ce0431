"""Calls of kernels with packed q, k and v, and their results in float64."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from lra import kernels
from tests.helpers import errors, reference

SCALE = 0.7


@dataclasses.dataclass(frozen=True)
class Call:
  """A call of a kernel; `form` is its feature map, or activation for lightning.
  """

  op: str
  form: str
  batch: int
  length: int
  heads: int
  width: int
  dtype: str = 'float32'
  seed: int = 0

  @property
  def normalize(self):
    return self.op == 'linear' and self.form == 'elu1'

  def options(self):
    if self.op == 'simpletron':
      return {'scale': SCALE}
    if self.op == 'lightning':
      return {'scale': SCALE, 'activation': self.form, 'slopes': self.slopes()}
    named = {'feature_map': self.form, 'normalize': self.normalize}
    return {'scale': SCALE, **named}

  def slopes(self):
    return jnp.asarray([0.3, 0.0, 1.5, 8.0, 1e-3, 0.1][: self.heads])

  def arrays(self):
    """Returns [q, k, v, do], mask, first state, gradient of the last state.

    The first four arrays are NaN at masked tokens.
    """
    rng = np.random.default_rng(self.seed)
    shape = self.batch, self.length, self.heads, self.width
    mask = rng.random(shape[:2]) < 0.8
    mask[:, 0] = True
    off = ~mask[:, :, None, None]
    arrays = [
      jnp.asarray(np.where(off, np.nan, rng.standard_normal(shape)), self.dtype)
      for _ in range(4)
    ]
    states = rng.standard_normal((2, shape[0], *shape[2:], self.width))
    norms = rng.random((2, shape[0], *shape[2:])) + 1
    state, last = (
      (s, z) if self.normalize else s
      for s, z in zip(jnp.float32(states), jnp.float32(norms), strict=True)
    )
    return arrays, jnp.asarray(mask), state, last


def run(call, kernel, interpret, apart=False, state=True):
  """Returns simulated results and all gradients: {name: float64 array}."""
  (q, k, v, do), mask, first, last = call.arrays()
  if not state:
    first = last = None
  options = {'mask': mask, 'kernel': kernel, 'return_state': state,
             **call.options()}
  function = (errors.FUNCTIONS if apart else errors.PACKED)[call.op]

  def attend(arrays, bias, first):
    named = {} if apart else {'bias': bias}
    return function(*arrays, initial_state=first, **named, **options)

  @jax.jit
  def both(do, last, *args):
    out, pull = jax.vjp(attend, *args)
    return out, pull((do, last) if state else do)

  arrays = (q, k, v) if apart else (jnp.stack([q, k, v], axis=2),)
  bias = None if apart else jnp.ones((3, call.heads, call.width))
  platform = 'tpu' if kernel == 'pallas_tpu' else 'gpu'
  with kernels.target(platform, interpret=interpret):
    out, (grads, dbias, dstate) = both(do, last, arrays, bias, first)
  if not apart:
    grads = [grads[0][:, :, i] for i in range(3)]
  got = dict(zip(('dq', 'dk', 'dv', 'dbias'), (*grads, dbias), strict=True))
  got['out'], final = out if state else (out, None)
  for name, x in (('state', final), ('dstate', dstate)):
    x = x if isinstance(x, tuple) else (x,)
    got |= {f'{name}{i}': y for i, y in enumerate(x)}
  return {n: np.float64(x) for n, x in got.items() if x is not None}


def check(call, got):
  """Asserts that results are within bounds of float64, 0 at masked tokens."""
  want = expected(call)
  assert got.keys() == want.keys()
  found = {n: errors.relative_rms(got[n], want[n]) for n in want}
  limit = errors.bound('dq', call.dtype)
  assert all(error < limit for error in found.values()), found  # NaN fails
  off = ~np.asarray(call.arrays()[1])
  for name in ('out', 'dq', 'dk', 'dv'):
    assert not got[name][off].any(), name


def expected(call):
  if call.op == 'lightning':
    want = _lightning(call)
  else:
    want = _linear(call)
  grads = [want[n].sum((0, 1)) for n in ('dq', 'dk', 'dv')]
  return {**want, 'dbias': np.stack(grads)}


def _lightning(call):
  (q, k, v, do), mask, state, last = call.arrays()
  x = [reference.zero_masked(a, mask) for a in (q, k, v)]
  silu = call.form == 'silu'
  s = [1 / (1 + np.exp(-a)) for a in x]
  y = [a * b if silu else a for a, b in zip(x, s, strict=True)]
  out, *grads, final, dstate = reference.lightning(
    *y,
    mask,
    do,
    slopes=call.slopes(),
    scale=SCALE,
    initial_state=state,
    dfinal=last,
  )
  if silu:
    slopes = [b * (1 + a * (1 - b)) for a, b in zip(x, s, strict=True)]
    grads = [g * slope for g, slope in zip(grads, slopes, strict=True)]
  names = 'out', 'dq', 'dk', 'dv', 'state0', 'dstate0'
  return dict(zip(names, (out, *grads, final, dstate), strict=True))


def _linear(call):
  """Evaluates the equations of linear attention with a state in float64."""
  (q, k, v, do), mask, state, last = call.arrays()
  q, k, v, do = (reference.zero_masked(x, mask) for x in (q, k, v, do))
  keep = np.asarray(mask)[:, :, None, None]
  name = call.form or 'identity'
  phi = {
    'elu1': lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))),
    'relu': lambda x: np.maximum(x, 0),
    'identity': lambda x: x,
  }[name]
  slope = {
    'elu1': lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0))),
    'relu': lambda x: (x > 0) * 1.0,
    'identity': np.ones_like,
  }[name]
  phi_q, phi_k = phi(q), phi(k) * keep
  s0, z0 = state if call.normalize else (state, 0)
  ds, dz = last if call.normalize else (last, 0)
  s = np.einsum('blhd,blhe->bhde', phi_k, v) + np.float64(s0)
  num = SCALE * np.einsum('blhd,bhde->blhe', phi_q, s)
  norm, total, dnorm = 1.0, 0.0, 0.0
  if call.normalize:
    total = phi_k.sum(1) + np.float64(z0)
    norm = np.einsum('blhd,bhd->blh', phi_q, total)[..., None] + 1e-6
  out = num / norm * keep
  dnum = SCALE * do / norm
  dphi_q = np.einsum('blhe,bhde->blhd', dnum, s)
  ds = np.einsum('blhd,blhe->bhde', phi_q, dnum) + np.float64(ds)
  if call.normalize:
    dnorm = -(do * out).sum(-1, keepdims=True) / norm
    dphi_q = dphi_q + dnorm * total[:, None]
    dz = (phi_q * dnorm * keep).sum(1) + np.float64(dz)
  dphi_k = np.einsum('blhe,bhde->blhd', v, ds)
  if call.normalize:
    dphi_k = dphi_k + dz[:, None]
  want = {
    'out': out,
    'dq': dphi_q * slope(q) * keep,
    'dk': dphi_k * slope(k) * keep,
    'dv': np.einsum('blhd,bhde->blhe', phi_k, ds),
    'state0': s,
    'dstate0': ds,
  }
  if call.normalize:
    want |= {'state1': total, 'dstate1': dz}
  return want
