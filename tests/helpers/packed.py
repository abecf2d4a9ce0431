"""Calls of kernels with packed q, k and v, and their results in float64."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from lra import kernels
from tests.helpers import errors

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


def run(call, kernel, interpret, apart=False):
  """Returns simulated results and all gradients: {name: float64 array}."""
  (q, k, v, do), mask, first, last = call.arrays()
  options = {'mask': mask, 'kernel': kernel, 'return_state': True,
             **call.options()}
  function = (errors.FUNCTIONS if apart else errors.PACKED)[call.op]

  def attend(arrays, bias, first):
    named = {} if apart else {'bias': bias}
    return function(*arrays, initial_state=first, **named, **options)

  @jax.jit
  def both(do, last, *args):
    out, pull = jax.vjp(attend, *args)
    return out, pull((do, last))

  arrays = (q, k, v) if apart else (jnp.stack([q, k, v], axis=2),)
  bias = None if apart else jnp.ones((3, call.heads, call.width))
  platform = 'tpu' if kernel == 'pallas_tpu' else 'gpu'
  with kernels.target(platform, interpret=interpret):
    out, (grads, dbias, dstate) = both(do, last, arrays, bias, first)
  if not apart:
    grads = [grads[0][:, :, i] for i in range(3)]
  got = dict(zip(('dq', 'dk', 'dv', 'dbias'), (*grads, dbias), strict=True))
  got['out'], final = out
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
  arrays, mask, state, last = call.arrays()
  # The reference has pairs of states for linear attention.
  alone = call.op == 'linear' and not call.normalize
  given = {'initial_state': (state, 0.0) if alone else state,
           'dfinal': (last, 0.0) if alone else last}
  *values, final, dstate = errors.reference_of(
    call.op, arrays, np.asarray(mask), call.options() | given)
  want = dict(zip(('out', 'dq', 'dk', 'dv'), values, strict=True))
  for name, x in (('state', final), ('dstate', dstate)):
    parts = x if call.op == 'linear' else (x,)
    want |= {f'{name}{i}': y for i, y in enumerate(parts[:1] if alone
                                                   else parts)}
  return {**want, 'dbias': np.stack([
    want[name].sum((0, 1)) for name in ('dq', 'dk', 'dv')])}
