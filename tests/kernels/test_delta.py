"""Compares the delta rules with a recurrence over tokens in float64."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import reference
from lra.kernels.delta import xla as xla_delta
from tests.helpers import errors, small

FULL = pytest.mark.full
FUNCTIONS = {'delta': kernels.delta_rule, 'general': kernels.general_delta_rule}
REFERENCES = {
  'delta': reference.delta_rule, 'general': reference.general_delta_rule
}


@dataclasses.dataclass(frozen=True)
class Case:
  """Settings of random operands; masked tokens hold NaN.

  `decay` is the mean log decay of a token, 0 for no decay. `beta` is the
  largest possible beta of a token.
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
  """Returns positional arguments, keywords, gradients of both results."""
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


@pytest.mark.every(5, 1)
@pytest.mark.parametrize(
  'case', FEW + [pytest.param(x, marks=FULL) for x in MORE], ids=str
)
def test_xla(case):
  check(case)


@pytest.mark.every(5, 3)
@pytest.mark.parametrize('case', [FEW[i] for i in (1, 3, 4, 6, 8)], ids=str)
def test_chunks_of_accelerators(case, monkeypatch):
  monkeypatch.setattr(xla_delta, 'CPU_CHUNK', xla_delta.CHUNK)
  check(case)


@pytest.mark.every(4, 2)
@pytest.mark.parametrize('case', [FEW[i] for i in (0, 2, 5, 7)], ids=str)
def test_segments(case, monkeypatch):
  """Several segments, the last of them shorter, give the reference's results.
  """
  monkeypatch.setattr(xla_delta, 'SEGMENT', 48)
  check(case)


@pytest.mark.parametrize('rule', sorted(FUNCTIONS))
def test_the_reference_has_the_gradients_of_its_recurrence(rule):
  """Compares the reference's gradients with finite differences."""
  case = Case(6, rule, decay=-0.3, channels=True, beta=1.5)
  arrays, named, do, dlast = _operands(case)
  mask = named['mask']
  names = 'qkvab'[: len(arrays)]
  given = {n: np.nan_to_num(np.asarray(y, np.float64))
           for n, y in (*zip(names, arrays, strict=True), *named.items())
           if n not in ('mask', 'reverse', 'scale')}  # fmt: skip
  do, dlast = (np.asarray(y, np.float64) for y in (do, dlast))

  def run(given):
    rest = {n: y for n, y in given.items() if n not in names}
    return REFERENCES[rule](
      *(given[n] for n in names), do, dlast=dlast, mask=mask, scale=0.7, **rest
    )

  def loss(given):
    out, last, _ = run(given)
    return np.sum(out * do) + np.sum(last * dlast)

  grads = run(given)[2]
  assert grads.keys() == given.keys()
  rng = np.random.default_rng(0)
  for name, grad in grads.items():
    step = 1e-5 * rng.standard_normal(grad.shape)
    there, back = (
      loss(given | {name: given[name] + sign * step}) for sign in (1, -1)
    )
    np.testing.assert_allclose(
      (there - back) / 2, np.sum(grad * step), rtol=1e-5, err_msg=name
    )


def test_both_rules_agree():
  """A general delta rule with k * beta, -k, beta * k equals the delta rule."""
  (q, k, v), named, *_ = _operands(Case(40, mask=False, state=False))
  beta = named['beta'][..., None]
  delta, general = (
    jax.jit(functools.partial(f, scale=0.7)) for f in FUNCTIONS.values()
  )
  want = delta(q, k, v, beta=named['beta'])
  got = general(q, k * beta, v, -k, beta * k)
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_second_half_from_the_state_of_the_first():
  case = Case(50, decay=-0.1, channels=True, mask=False, state=False)
  arrays, named, *_ = _operands(case)
  tokens = [*arrays, named['beta'], named['log_decay']]

  @jax.jit
  def run(tokens, state=None):
    q, k, v, beta, log_decay = tokens
    return kernels.delta_rule(
      q, k, v, beta=beta, log_decay=log_decay, initial_state=state,
      return_state=True,
    )  # fmt: skip

  whole, last = run(tokens)
  first, state = run([y[:, :31] for y in tokens])
  second, end = run([y[:, 31:] for y in tokens], state)
  small.assert_close(jnp.concatenate([first, second], 1), whole, 2e-6)
  small.assert_close(end, last, 2e-6)


@FULL
def test_a_decay_to_nothing():
  """A log decay of -inf forgets all before the token; gradients are finite."""
  case = Case(40, decay=-0.1, mask=False, state=False)
  (q, k, v), named, do, _ = _operands(case)
  named['log_decay'] = named['log_decay'].at[:, 17].set(-jnp.inf)

  def loss(q, k, v):
    return jnp.sum(kernels.delta_rule(q, k, v, **named) * do)

  grads = jax.jit(jax.grad(loss, (0, 1, 2)))(q, k, v)
  assert all(np.isfinite(x).all() for x in grads)
  rule = jax.jit(kernels.delta_rule, static_argnames=('reverse', 'scale'))
  out = rule(q, k, v, **named)
  named = {n: y[:, 17:] if np.ndim(y) else y for n, y in named.items()}
  alone = rule(q[:, 17:], k[:, 17:], v[:, 17:], **named)
  small.assert_close(out[:, 17:], alone, 2e-6)


def test_a_mesh_splits_the_batch():
  mesh = jax.make_mesh(
    (2,), ('data',), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:2]
  )
  case = Case(20, decay=-0.1)
  arrays, named, do, _ = _operands(case)
  arrays, named, do = jax.tree.map(
    lambda y: y[:2] if np.ndim(y) else y, (arrays, named, do)
  )

  def gradients(rule):
    rest = dict(named)
    beta, log_decay = rest.pop('beta'), rest.pop('log_decay')
    return jax.jit(jax.grad(lambda q, k, v, beta, log_decay: jnp.sum(rule(
      q, k, v, beta=beta, log_decay=log_decay, **rest) * do),
      range(5)))(*arrays, beta, log_decay)  # fmt: skip

  local = jax.shard_map(
    lambda *y: kernels.delta_rule(*y[:3], beta=y[3], log_decay=y[4]),
    mesh=mesh, in_specs=jax.P('data'), out_specs=jax.P('data'),
  )  # fmt: skip
  tokens = [*arrays, named['beta'], named['log_decay']]
  tokens = [jnp.nan_to_num(y) for y in tokens]
  small.assert_close(
    jax.jit(local)(*tokens),
    jax.jit(kernels.delta_rule)(
      *tokens[:3], beta=tokens[3], log_decay=tokens[4]
    ),
    2e-6,
  )
  for y, z in zip(
    gradients(kernels.sharded(kernels.delta_rule, mesh)),
    gradients(kernels.delta_rule), strict=True,
  ):  # fmt: skip
    small.assert_close(y, z, 1e-5)


@pytest.mark.every(4)
@pytest.mark.parametrize('case', [FEW[0], FEW[2], FEW[6], FEW[8]], ids=str)
def test_strict_modes(case):
  arrays, named, do, _ = _operands(case)
  with (
    jax.numpy_rank_promotion('raise'),
    jax.numpy_dtype_promotion('strict'),
  ):
    jax.eval_shape(
      jax.grad(lambda arrays: jnp.sum(
        FUNCTIONS[case.rule](*arrays, **named) * do)),
      arrays,
    )  # fmt: skip


def test_refusals_name_the_argument():
  q = k = v = jnp.ones((2, 8, 3, 4))
  beta = q[..., 0]
  for word, operands, options in (
    (r'q must be a non-empty array', (q[0], k, v), {}),
    ('k must have the shape of q', (q, k[:, :5], v), {}),
    ('v must have the dtype of q', (q, k, v.astype('bfloat16')), {}),
    (r'beta must be float32 \[B, L, H\]', (q, k, v), {'beta': q}),
    (r'log_decay must be float32 \[B, L, H\]', (q, k, v),
     {'log_decay': q[..., :2]}),
    ('mask must be bool', (q, k, v), {'mask': jnp.ones((2, 8))}),
    ('initial_state must be float32', (q, k, v), {'initial_state': q}),
    ('scale must be finite', (q, k, v), {'scale': float('inf')}),
    ("kernel must be 'auto' or one of", (q, k, v), {'kernel': 'cudnn'}),
  ):  # fmt: skip
    with pytest.raises(ValueError, match=word):
      kernels.delta_rule(*operands, **{'beta': beta, **options})
  with pytest.raises(ValueError, match='b must be float32'):
    kernels.general_delta_rule(q, k, v, q, q[..., :2])
