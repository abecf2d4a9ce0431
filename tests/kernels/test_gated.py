"""Compares gated linear attention with a float64 recurrence over tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import reference, tpu
from lra.kernels.gated import xla as xla_gated
from tests.helpers import aot, errors, small
from tools import hlo

FULL = pytest.mark.full
NAMES = ('o', 'dq', 'dk', 'dv', 'dlog_decay', 'state', 'dstate')
SCALE = 0.7


@dataclasses.dataclass(frozen=True)
class Case:
  """Settings of random operands; masked tokens hold NaN.

  `strongest` is minus the smallest possible log decay of a token.
  """

  length: int
  channels: bool = False
  groups: int = 2
  heads: int = 4
  features: int = 8
  width: int = 6
  dtype: str = 'float32'
  strongest: float = 1.0
  reverse: bool = False
  mask: bool = True
  state: bool = True

  @property
  def bound(self):
    if self.dtype == 'bfloat16':
      return 8e-3
    # The difference of two sums of log decays has fewer exact digits.
    return 1e-5 if self.channels or self.strongest <= 1 else 1e-4


def _operands(case):
  rng = np.random.default_rng(case.length)
  lead = 3, case.length
  q, k = rng.standard_normal((2, *lead, case.groups, case.features))
  v, do = rng.standard_normal((2, *lead, case.heads, case.width))
  shape = (*lead, case.heads, case.features)[: 3 + case.channels]
  # Most gates are weak, a few strong.
  g = -case.strongest * rng.random(shape) ** 6
  state, dfinal = rng.standard_normal(
    (2, 3, case.heads, case.features, case.width)
  ).astype('f')
  named = {'reverse': case.reverse, 'scale': SCALE}
  if case.mask:
    named['mask'] = rng.random(lead) < 0.7
    named['mask'][-1] = False
    for x in (q, k, v, g):
      x[~named['mask']] = np.nan
  q, k, v, do = (jnp.asarray(x, case.dtype) for x in (q, k, v, do))
  return (q, k, v, g.astype('f')), do, state, dfinal, named


def _got(kernel, arrays, do, state, dfinal, named, with_state):
  @jax.jit
  def both(arrays, state, do, dfinal):
    def call(arrays, state):
      *qkv, g = arrays
      return kernels.gated_linear_attention(
        *qkv, log_decay=g, initial_state=state if with_state else None,
        return_state=True, kernel=kernel, **named)  # fmt: skip

    out, pull = jax.vjp(call, arrays, state)
    return *out, pull((do, dfinal))

  o, final, (grads, dstate) = both(arrays, state, do, dfinal)
  return o, *grads, final, dstate


def check(kernel, case):
  arrays, do, state, dfinal, named = _operands(case)
  with errors.simulated(kernel):
    got = _got(kernel, arrays, do, state, dfinal, named, case.state)
  q, k, v, g, do = (np.nan_to_num(np.asarray(x, np.float64))
                    for x in (*arrays, do))  # fmt: skip
  want = reference.gated(
    q, k, v, g, do, dfinal=dfinal,
    initial_state=state if case.state else None, **named)  # fmt: skip
  for name, x, y in zip(NAMES, got, want, strict=True):
    x = np.asarray(x, np.float64)
    assert np.isfinite(x).all(), name
    if name == 'dstate' and not case.state:
      continue
    # Gradients of strong gates are small, but sums of large terms.
    found = errors.relative_rms(x, y)
    assert found < case.bound, (name, found)
    if case.mask and name not in ('state', 'dstate'):
      assert not x[~named['mask']].any(), name


FEW = [
  Case(70),
  Case(33, groups=4, state=False, reverse=True),
  Case(130, strongest=50.0, groups=1),
  Case(90, dtype='bfloat16', mask=False),
  Case(70, channels=True),
  Case(33, channels=True, groups=4, state=False, reverse=True),
  Case(130, channels=True, strongest=50.0),
  Case(90, channels=True, dtype='bfloat16', mask=False),
]
MORE = [
  Case(length, channels, groups, 4, features, width, dtype, strongest, reverse)
  for length in (1, 2, 64, 257)
  for channels in (False, True)
  for groups, features, width, dtype, strongest, reverse in (
    (4, 16, 16, 'float32', 1.0, False), (2, 5, 7, 'float32', 50.0, True),
    (1, 3, 9, 'bfloat16', 0.1, True))
]  # fmt: skip
each = pytest.mark.parametrize(
  'case', FEW + [pytest.param(x, marks=FULL) for x in MORE], ids=str
)


@each
def test_xla(case):
  check('xla', case)


COMPILED = [
  # B, L, G, H, N, E, dtype; the third has the widths of Mamba-2.
  (8, 4096, 4, 4, 64, 64, 'bfloat16'), (2, 2001, 4, 4, 64, 128, 'bfloat16'),
  (4, 4096, 1, 4, 64, 128, 'bfloat16'), (1, 300, 16, 16, 128, 256, 'float32'),
  (2, 17, 2, 2, 16, 48, 'float32'),
]  # fmt: skip

HEADWISE = [
  dataclasses.replace(case, features=16, width=width, heads=heads)
  for case, width, heads in (
    (Case(20, reverse=True), 32, 4), (Case(300), 32, 4),
    (Case(129, groups=1, strongest=50.0), 16, 8),
    (Case(40, groups=4, state=False), 48, 4),
    (Case(300, dtype='bfloat16', mask=False, groups=16), 16, 16))
]  # fmt: skip


@pytest.mark.parametrize('case', HEADWISE[:1] + [
  pytest.param(x, marks=FULL) for x in HEADWISE[1:]], ids=str)  # fmt: skip
def test_pallas_tpu(case, monkeypatch):
  """Long cases have several blocks, of one chunk or two, or sets of groups."""
  monkeypatch.setattr(tpu, 'MAX_ROWS', 256 if case.mask else 128)
  check('pallas_tpu', case)


@FULL
@pytest.mark.parametrize('target', ('v5e', 'v6e'))
@pytest.mark.parametrize('shape', COMPILED)
def test_compiled_for_a_tpu(target, shape):
  """Forward and backward are one kernel each.

  The first shape copies nothing. For the others, XLA chooses another layout of
  the results at the end of this program, which no layer has.
  """
  try:
    place = jax.sharding.SingleDeviceSharding(aot.device(target))
  except aot.Unavailable as reason:
    pytest.skip(str(reason))
  b, length, groups, heads, features, width, dtype = shape

  def array(*shape, dtype=dtype):
    return jax.ShapeDtypeStruct((b, *shape), dtype, sharding=place)

  def both(q, k, v, g, do):
    def call(q, k, v, g):
      out = kernels.gated_linear_attention(
        q.reshape(b, length, groups, features),
        k.reshape(b, length, groups, features),
        v.reshape(b, length, heads, width), kernel='pallas_tpu',
        log_decay=jnp.swapaxes(g, 1, 2))
      return out.reshape(v.shape)  # fmt: skip

    out, pull = jax.vjp(call, q, k, v, g)
    return out, *pull(do)

  keys = array(length, groups * features)
  values = array(length, heads * width)
  gates = array(heads, length, dtype='float32')  # no lanes are padded
  with kernels.target('tpu'):
    text = jax.jit(both).lower(
      keys, keys, values, gates, values).compile().as_text()  # fmt: skip
  assert text.count('custom_call_target="tpu_custom_call"') == 2
  if shape == COMPILED[0]:
    least = b * length * groups * features * keys.dtype.itemsize
    assert not hlo.copies(text, least)


@pytest.mark.parametrize('channels', [False, True])
def test_several_segments(channels, monkeypatch):
  """Runs several segments, with the longer chunks of accelerators."""
  monkeypatch.setattr(xla_gated, 'CHUNKS', 2)
  monkeypatch.setattr(xla_gated.channels.dispatch, 'platform', lambda: 'gpu')
  monkeypatch.setattr(xla_gated.scalar, 'chunk', lambda: 16)
  check('xla', Case(140, channels))


def test_the_reference_has_the_gradients_of_its_recurrence():
  """Compares the reference's gradients with finite differences."""
  rng = np.random.default_rng(0)
  for channels in (False, True):
    q, k = rng.standard_normal((2, 2, 6, 2, 3))
    v, do = rng.standard_normal((2, 2, 6, 4, 5))
    g = -rng.random((2, 6, 4, 3)[: 3 + channels])
    state, dfinal = rng.standard_normal((2, 2, 4, 3, 5))
    mask = rng.random((2, 6)) < 0.8

    def run(q, k, v, g, state):
      return reference.gated(
        q, k, v, g, do, mask=mask, initial_state=state,  # noqa: B023
        dfinal=dfinal)  # noqa: B023 # fmt: skip

    def loss(*given):
      o, *_, final, _ = run(*given)
      return np.sum(o * do) + np.sum(final * dfinal)  # noqa: B023

    given = [q, k, v, g, state]
    _, *grads, _, dstate = run(*given)
    for i, grad in enumerate((*grads, dstate)):
      step = 1e-6 * rng.standard_normal(given[i].shape)
      there, back = (
        loss(*given[:i], given[i] + sign * step, *given[i + 1 :])
        for sign in (1, -1)
      )
      np.testing.assert_allclose(
        (there - back) / 2, np.sum(grad * step), rtol=1e-5
      )


def test_minus_infinity_forgets():
  q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 40, 2, 4))
  for shape in ((1, 40, 2), (1, 40, 2, 4)):
    g = jnp.zeros(shape).at[:, 17].set(-jnp.inf)
    run = jax.jit(kernels.gated_linear_attention)
    whole = run(q, k, v, log_decay=g)
    first, second = (
      run(q[:, i], k[:, i], v[:, i], log_decay=0 * g[:, :1].repeat(n, 1))
      for i, n in ((slice(17), 17), (slice(17, None), 23))
    )
    np.testing.assert_allclose(
      whole, jnp.concatenate([first, second], 1), rtol=1e-5, atol=1e-5
    )


def test_second_half_from_the_state_of_the_first():
  (q, k, v, g), *_ = _operands(Case(50, mask=False))
  run = jax.jit(
    kernels.gated_linear_attention, static_argnames='return_state'
  )
  whole, last = run(q, k, v, log_decay=g, return_state=True)
  first, state = run(
    q[:, :31], k[:, :31], v[:, :31], log_decay=g[:, :31], return_state=True
  )
  second, end = run(
    q[:, 31:], k[:, 31:], v[:, 31:], log_decay=g[:, 31:], initial_state=state,
    return_state=True)  # fmt: skip
  parts = jnp.concatenate([first, second], 1)
  small.assert_close(parts, whole, 1e-5)
  small.assert_close(end, last, 1e-5)


@pytest.mark.parametrize('channels', [False, True])
def test_a_mesh_splits_the_batch(channels):
  mesh = jax.make_mesh(
    (2,), ('data',), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:2]
  )
  (q, k, v, g), do, *_ = _operands(Case(20, channels, mask=False))
  q, k, v, g, do = (x[:2] for x in (q, k, v, g, do))
  run = kernels.gated_linear_attention
  got, want = (
    jax.jit(jax.grad(lambda q, k, v, g: jnp.sum(
      f(q, k, v, log_decay=g) * do), (0, 1, 2, 3)))(q, k, v, g)  # noqa: B023
    for f in (kernels.sharded(run, mesh), run)
  )  # fmt: skip
  for x, y in zip(got, want, strict=True):
    small.assert_close(x, y, 1e-5)


@pytest.mark.parametrize('channels', [False, True])
def test_strict_modes(channels):
  (q, k, v, g), do, state, _, named = _operands(
    Case(20, channels, dtype='bfloat16')
  )
  run = kernels.gated_linear_attention
  with (
    jax.numpy_rank_promotion('raise'),
    jax.numpy_dtype_promotion('strict'),
  ):
    jax.eval_shape(lambda: jax.vjp(lambda q, k, v, g, state: run(
      q, k, v, log_decay=g, initial_state=state, **named),
      q, k, v, g, state)[1](do))  # fmt: skip


def test_refusals_name_the_argument():
  q, v, g = jnp.ones((2, 8, 2, 3)), jnp.ones((2, 8, 4, 5)), jnp.ones((2, 8, 4))
  run = kernels.gated_linear_attention
  for word, args, options in (
    (r'^q must be a non-empty array', (q[0], q, v, g), {}),
    ('^k must have the shape of q', (q, q[:, :, :1], v, g), {}),
    (r'^v must be \[B, L, H, E\]', (q, q, v[:, :, :3], g), {}),
    ('^v must have the dtype of q', (q, q, v.astype('bfloat16'), g), {}),
    ('^log_decay must be float32', (q, q, v, g[..., :2]), {}),
    ('^log_decay must be float32', (q, q, v, g.astype('bfloat16')), {}),
    ('^mask must be bool', (q, q, v, g), {'mask': jnp.ones((2, 8))}),
    ('^initial_state must be', (q, q, v, g), {'initial_state': v[:, 0]}),
    ('^scale must be', (q, q, v, g), {'scale': 'large'}),
    ('^kernel must be', (q, q, v, g), {'kernel': 'cudnn'}),
  ):
    *qkv, decay = args
    with pytest.raises(ValueError, match=word):
      run(*qkv, log_decay=decay, **options)
