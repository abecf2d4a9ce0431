"""Random calls of the recurrences, and their comparison with float64.

The operations are the delta rules ('delta', 'general'), gated linear attention
('gated') and the scan ('scan').
"""

import jax
import jax.numpy as jnp
import numpy as np

from lra import kernels
from tests.helpers import errors, reference

FUNCTIONS = {
  'delta': kernels.delta_rule, 'general': kernels.general_delta_rule,
  'gated': kernels.gated_linear_attention, 'scan': kernels.linear_scan,
}  # fmt: skip
POSITIONAL = {'delta': 'qkv', 'general': 'qkvab', 'gated': 'qkv', 'scan': 'x'}
SETTINGS = {
  'dtype': 'float32', 'batch': 3, 'mask': True, 'state': True, 'reverse': False,
}  # fmt: skip
# `decay` is the mean log decay, 0 for none; `beta` the largest one. `strongest`
# is minus the smallest possible log decay. `constant` is for the factor a.
OWN = {
  'delta': {'decay': 0.0, 'channels': False, 'beta': 1.0, 'heads': 2,
            'features': 12, 'width': 20},
  'gated': {'strongest': 1.0, 'channels': False, 'groups': 2, 'heads': 4,
            'features': 8, 'width': 6},
  'scan': {'constant': False, 'segments': False, 'width': 40},
}  # fmt: skip
OWN['general'] = OWN['delta']


class Case:
  """Settings of a call; masked tokens and padding hold NaN."""

  def __init__(self, op, length, **settings):
    known = SETTINGS | OWN[op]
    assert settings.keys() <= known.keys(), settings
    self.op, self.length, self.settings = op, length, settings
    self.__dict__ |= known | settings

  def but(self, **settings):
    return Case(self.op, self.length, **(self.settings | settings))

  def __str__(self):
    given = ','.join(f'{k}={v}' for k, v in self.settings.items())
    return f'{self.op}-{self.length}-{given}'

  @property
  def bound(self):
    if self.dtype == 'bfloat16':
      return {'scan': 6e-3, 'gated': 8e-3}.get(self.op, 2e-2)
    # The difference of two sums of log decays has fewer exact digits.
    strong = self.op == 'gated' and not self.channels and self.strongest > 1
    return 1e-4 if strong else 1e-5


class Call:
  """A random call of a `Case`.

  Attributes:
    moving: name -> array with a gradient.
    fixed: further keyword arguments.
    cotangents: of the output and the last state.
    off: bool [B, L], the tokens whose outputs and gradients are 0.
  """

  def __init__(self, case):
    self.case, self.rng = case, np.random.default_rng(case.length)
    lead = case.batch, case.length
    self.off = np.zeros(lead, bool)
    self.fixed = {'reverse': case.reverse}
    if case.op != 'scan':
      self.fixed['scale'] = 0.7
    if case.mask:
      mask = self.rng.random(lead) < 0.7
      mask[-1] = False
      self.fixed['mask'], self.off = mask, ~mask
    if getattr(case, 'segments', False):
      self.off = self.off | self._segments()
    arrays, wide, out, state = getattr(self, f'_{case.op}')(lead)
    arrays |= wide
    for name, x in arrays.items():
      if name != 'a' or case.op == 'general' or x.ndim == 3:
        x[self.off] = np.nan
    kind = 'complex64' if case.dtype == 'complex64' else 'float32'
    self.moving = {
      n: jnp.asarray(x, kind if n in wide else case.dtype)
      for n, x in arrays.items()}  # fmt: skip
    if case.state:
      self.moving['initial_state'] = jnp.asarray(self._normal(*state), kind)
    self.cotangents = (jnp.asarray(self._normal(*out), case.dtype),
                       jnp.asarray(self._normal(*state), kind))  # fmt: skip

  def _normal(self, *shape):
    x = self.rng.standard_normal(shape)
    if self.case.dtype == 'complex64':
      x = x + 1j * self.rng.standard_normal(shape)
    return x

  def _unit(self, *shape):
    x = self._normal(*shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)

  def _delta(self, lead):
    c = self.case
    lead = *lead, c.heads
    arrays = {
      'q': self._normal(*lead, c.features), 'k': self._unit(*lead, c.features),
      'v': self._normal(*lead, c.width)}  # fmt: skip
    wide = {}
    if c.decay:
      shape = (*lead, c.features) if c.channels else lead
      # Some tokens forget everything, and some nothing.
      wide['log_decay'] = -self.rng.exponential(-c.decay, shape) * (
        self.rng.choice([1, 1e-3], lead[:2] + (1,) * (len(shape) - 2)))
    if c.op == 'general':
      key = self._unit(*lead, c.features)
      arrays |= {'a': -key, 'b': key * self.rng.uniform(0, c.beta, key.shape)}
    else:
      wide['beta'] = self.rng.uniform(0, c.beta, lead)
    return arrays, wide, arrays['v'].shape, self._state()

  _general = _delta

  def _gated(self, lead):
    c = self.case
    q, k = self._normal(2, *lead, c.groups, c.features)
    v = self._normal(*lead, c.heads, c.width)
    shape = (*lead, c.heads, c.features)[: 3 + c.channels]
    # Most gates are weak, a few strong.
    wide = {'log_decay': -c.strongest * self.rng.random(shape) ** 6}
    return {'q': q, 'k': k, 'v': v}, wide, v.shape, self._state()

  def _state(self):
    c = self.case
    return c.batch, c.heads, c.features, c.width

  def _scan(self, lead):
    c = self.case
    shape = *lead, c.width
    a = self.rng.uniform(0.5, 1.0, shape[2:] if c.constant else shape)
    if c.dtype == 'complex64':
      a = a * np.exp(1j * self.rng.uniform(-3, 3, a.shape))
    wide = {'a': a} if c.constant else {}
    arrays = {'x': self._normal(*shape)} | ({} if c.constant else {'a': a})
    state = (c.batch, *(3,) * c.segments, c.width)
    return arrays, wide, shape, state

  def _segments(self):
    """Sets two segments, an empty one, and padding at both ends."""
    c = self.case
    cut = np.sort(self.rng.integers(0, c.length + 1, (c.batch, 3)), 1)
    place = np.arange(c.length)
    ids = np.select(
      [(place >= cut[:, :1]) & (place < cut[:, 1:2]),
       (place >= cut[:, 1:2]) & (place < cut[:, 2:])], [0, 2], -1)  # fmt: skip
    self.fixed |= {'segment_ids': ids.astype(np.int32), 'num_segments': 3}
    return ids < 0

  def run(self, moving, kernel='auto', **options):
    """Returns the operation of `moving`, with gradients for jax.vjp."""
    names = POSITIONAL[self.case.op]
    return FUNCTIONS[self.case.op](
      *(moving[n] for n in names), kernel=kernel, return_state=True,
      **{n: x for n, x in moving.items() if n not in names},
      **self.fixed, **options)  # fmt: skip

  def got(self, kernel):
    """Returns the kernel's results and gradients by name."""

    @jax.jit
    def both(moving, cotangents):
      found, pull = jax.vjp(lambda m: self.run(m, kernel), moving)
      return found, pull(cotangents)[0]

    (out, last), grads = both(self.moving, self.cotangents)
    return {'out': out, 'last': last} | grads

  def exact(self):
    """Returns `moving` in float64, 0 in place of NaN."""
    kind = 'complex128' if self.case.dtype == 'complex64' else 'float64'
    return {n: np.nan_to_num(np.asarray(x).astype(kind))
            for n, x in self.moving.items()}  # fmt: skip

  def want(self, moving=None):
    """Returns results and gradients by name, from the float64 reference."""
    op, moving = self.case.op, dict(moving or self.exact())
    do, last = (np.asarray(x).astype(moving[POSITIONAL[op][0]].dtype)
                for x in self.cotangents)  # fmt: skip
    first, fixed = moving.pop('initial_state', None), dict(self.fixed)
    fixed['initial_state'] = first
    if op in ('delta', 'general'):
      function = getattr(reference, FUNCTIONS[op].__name__)
      arrays = [moving.pop(n) for n in POSITIONAL[op]]
      out, final, grads = function(*arrays, do, dlast=last, **moving, **fixed)
    elif op == 'gated':
      out, *grads, final, dstate = reference.gated(
        *moving.values(), do, dfinal=last, **fixed)
      grads = dict(zip(moving, grads, strict=True)) | {'initial_state': dstate}
    else:
      run, arrays = reference.scan, (moving['x'], moving['a'], do)
      if 'segment_ids' in fixed:
        run = reference.scan_segments
        arrays += fixed.pop('segment_ids'), fixed.pop('num_segments')
      out, dx, da, final, dstate = run(*arrays, dlast=last, **fixed)
      grads = {'x': dx, 'a': da, 'initial_state': dstate}
    if first is None:
      grads.pop('initial_state')
    return {'out': out, 'last': final} | grads


def check(kernel, case):
  """Asserts that a kernel's results and gradients are those of float64."""
  call = Call(case)
  with errors.simulated(kernel):
    got = call.got(kernel)
  want, found = call.want(), {}
  assert got.keys() == want.keys()
  for name, x in got.items():
    x, exact = parts(x), parts(want[name])
    assert np.isfinite(x).all(), name
    # The decay of a first token has the gradient 0, up to rounding.
    found[name] = errors.relative_rms(x, exact) if exact.any() else (
      np.sqrt(np.square(x).mean()))
    if name not in ('last', 'initial_state') and x.ndim > 2:
      assert not x[:, call.off].any(), name
  assert max(found.values()) < case.bound, found


def parts(x):
  """Returns the real and the imaginary part in float64."""
  x = np.asarray(x)
  x = x if np.iscomplexobj(x) else x.astype(np.float64)
  return np.stack([x.real, x.imag])
