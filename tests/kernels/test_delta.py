"""The delta rules against a float64 recurrence, token by token."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kernels
from kernels.delta import reference
from kernels.delta import xla as xla_delta
from kernels.tools import errors

FULL = pytest.mark.full
FUNCTIONS = {'delta': kernels.delta_rule, 'general': kernels.general_delta_rule}
REFERENCES = {
  'delta': reference.delta_rule, 'general': reference.general_delta_rule
}


@dataclasses.dataclass(frozen=True)
class Case:
  """Random operands; masked tokens hold NaN.

  `decay` is the mean log decay of a token: 0 for none. `beta` is its largest
  value.
  """

  length: int
  rule: str = 'delta'
  decay: float = 0.0
  channels: bool = False
  beta: float = 1.0
  dtype: str = 'float32'
  reverse: bool = False
  mask: bool = True
  state: bool = True
  heads: int = 2
  keys: int = 12
  width: int = 20

  @property
  def bound(self):
    return 2e-2 if self.dtype == 'bfloat16' else 1e-5


def _operands(case):
  """Positional arguments, keywords, and gradients of results."""
  rng = np.random.default_rng(case.length)
  lead = 3, case.length, case.heads

  def normal(*shape):
    return rng.standard_normal(shape)

  def unit(*shape):
    x = normal(*shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)

  q, k, v = normal(*lead, case.keys), unit(*lead, case.keys), normal(
    *lead, case.width
  )
  named = {}
  if case.decay:
    shape = (*lead, case.keys) if case.channels else lead
    # some tokens forget everything, and some nothing
    named['log_decay'] = -rng.exponential(-case.decay, shape) * rng.choice(
      [1, 1e-3], lead[:2] + (1,) * (len(shape) - 2)
    )
  arrays = [q, k, v]
  if case.rule == 'general':
    key = unit(*lead, case.keys)
    arrays += [-key, key * rng.uniform(0, case.beta, key.shape)]
  else:
    named['beta'] = rng.uniform(0, case.beta, lead)
  arrays = [jnp.asarray(y, case.dtype) for y in arrays]
  named = {n: jnp.asarray(y, jnp.float32) for n, y in named.items()}
  named['reverse'] = case.reverse
  named['scale'] = 0.7
  if case.mask:
    mask = rng.random(lead[:2]) < 0.7
    mask[-1] = False
    named['mask'] = mask
    arrays, rest = jax.tree.map(
      lambda y: jnp.where(mask.reshape(*mask.shape, *(1,) * (y.ndim - 2)), y,
                          jnp.nan),
      (arrays, {n: y for n, y in named.items() if n in ('beta', 'log_decay')}),
    )  # fmt: skip
    named |= rest
  do = jnp.asarray(normal(*lead, case.width), case.dtype)
  dlast = None
  if case.state:
    shape = 3, case.heads, case.keys, case.width
    named['initial_state'] = jnp.asarray(normal(*shape), jnp.float32)
    dlast = jnp.asarray(normal(*shape), jnp.float32)
  return arrays, named, do, dlast


def _got(case, arrays, named, do, dlast):
  moving = ('beta', 'log_decay', 'initial_state')
  rest = {n: y for n, y in named.items() if n not in moving}
  named = {n: y for n, y in named.items() if n in moving}

  @jax.jit
  def both(arrays, named):
    def call(arrays, named):
      return FUNCTIONS[case.rule](*arrays, return_state=True, **named, **rest)

    (out, last), pull = jax.vjp(call, arrays, named)
    given = do, jnp.zeros_like(last) if dlast is None else dlast
    return out, last, pull(given)

  out, last, (of_arrays, of_named) = both(arrays, named)
  grads = dict(zip('qkvab', of_arrays, strict=False)) | of_named
  return out, last, grads


def check(case):
  arrays, named, do, dlast = _operands(case)
  out, last, grads = _got(case, arrays, named, do, dlast)
  exact = [np.asarray(y, np.float64) for y in (*arrays, do)]
  wanted, want_last, want_grads = REFERENCES[case.rule](
    *exact, dlast=dlast, **named
  )
  pairs = {'out': (out, wanted), 'last': (last, want_last)}
  pairs |= {name: (grad, want_grads[name]) for name, grad in grads.items()}
  found = {}
  for name, (x, y) in pairs.items():
    assert np.isfinite(np.asarray(x, np.float32)).all(), name
    found[name] = errors.relative_rms(x, y)
    if case.mask and name not in ('last', 'initial_state'):
      assert not np.asarray(x, np.float32)[~named['mask']].any(), name
  assert max(found.values()) < case.bound, found


FEW = [
  Case(70),
  Case(65, beta=2.0, reverse=True),
  Case(130, decay=-0.1, mask=False),
  Case(90, decay=-50.0, reverse=True),
  Case(130, decay=-0.1, channels=True, reverse=True),
  Case(90, decay=-50.0, channels=True),
  Case(75, 'general', decay=-0.3, channels=True),
  Case(90, 'general', decay=-50.0, channels=True, reverse=True),
  Case(90, decay=-0.1, channels=True, dtype='bfloat16'),
  Case(50, 'general', decay=-0.1, channels=True, dtype='bfloat16'),
]
MORE = [
  Case(length, rule, decay, channels, 1.0, dtype, reverse, mask, state)
  for length in (1, 2, 3, 64, 257)
  for rule in ('delta', 'general')
  for dtype in ('float32', 'bfloat16')
  for decay, channels, reverse, mask, state in (
    (0.0, False, False, True, False), (0.0, False, True, False, True),
    (-0.2, False, True, True, True), (-0.2, True, False, True, False),
    (-3.0, True, True, False, False),
  )
]  # fmt: skip


@pytest.mark.parametrize(
  'case', FEW + [pytest.param(x, marks=FULL) for x in MORE], ids=str
)
def test_xla(case):
  check(case)


@pytest.mark.parametrize('case', FEW[:8], ids=str)
def test_segments(case, monkeypatch):
  """Several segments of several chunks, the last of them shorter."""
  monkeypatch.setattr(xla_delta, 'CHUNK', 16)
  monkeypatch.setattr(xla_delta, 'SEGMENT', 48)
  check(case)
