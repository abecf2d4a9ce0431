"""Runs the Triton kernels in Pallas' interpreter.

The interpreter runs the bodies that a GPU runs. Memory that no program has
written holds NaN, and so does memory after the end of an array. The rows of
sequences follow each other, so a block that reaches past the end of its
sequence meets the next one. float32 matmuls split operands as TF32x3 does.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip('jax.experimental.pallas.triton')

from lra import kernels
from lra.kernels import dispatch, reference, triton
from tests.helpers import errors
from tests.helpers.errors import Case, relative_rms
from tests.helpers.gradients import with_cosines

OPS = tuple(errors.FUNCTIONS)
FULL = pytest.mark.full
PACKED = {
  'linear': kernels.linear_attention_packed,
  'simpletron': kernels.simpletron_attention_packed,
  'lightning': kernels.lightning_attention_packed,
}
# (op, case, number of parts of L; None: the kernels choose)
QUICK = [
  ('linear', Case(70, 2, 48, 'float32', 'empty', 1), None),
  ('linear', Case(260, 1, 64, 'bfloat16', 'ragged', 2, 1), 3),
  ('simpletron', Case(127, 1, 32, 'bfloat16', 'full', 0, 1), None),
  ('lightning', Case(70, 2, 48, 'float32', 'empty', 1), 2),
  ('lightning', Case(150, 2, 32, 'bfloat16', 'ragged', 3), 2),
]
WIDTHS = (16, 32, 48, 64, 80, 128, 160, 256)
LENGTHS = (1, 63, 64, 65, 127, 500)
MASKS = ('full', 'ragged', 'empty')


def _cases():
  """Yields cases of every width, with lengths, masks and part counts in turn.

  Each operation has each width in one of the two dtypes.
  """
  for n, width in enumerate(WIDTHS):
    for m, dtype in enumerate(('float32', 'bfloat16')):
      for op in OPS:
        i = 2 * n + m + OPS.index(op)
        heads = 3 if width < 128 else 1
        if (n + m + OPS.index(op)) % 2:
          continue
        yield op, Case(
          LENGTHS[i % 6], heads, width, dtype, MASKS[i % 3], i
        ), (None, 2)[i % 2]  # fmt: skip


@pytest.fixture
def simulated():
  with kernels.target('gpu', interpret=True):
    yield


def _cut(monkeypatch, parts):
  if parts is None:
    return

  def cut(length, pairs, rows, **_):
    blocks = -(-length // rows)
    per_part = -(-blocks // parts)
    return -(-blocks // per_part), per_part

  monkeypatch.setattr(triton, 'cut', cut)


@pytest.mark.every(2)
@pytest.mark.parametrize(
  'op, case, parts',
  QUICK + [pytest.param(*c, marks=FULL) for c in _cases()],
  ids=str,
)
def test_errors(op, case, parts, simulated, monkeypatch):
  _cut(monkeypatch, parts)
  found = errors.measure(op, 'pallas_triton', case)
  assert errors.within(found, case.dtype), (op, case, found)


def _broken(case, op):
  found = errors.measure(op, 'pallas_triton', case)
  return not errors.within(found, case.dtype)


@pytest.mark.full
@pytest.mark.parametrize('op', OPS)
def test_the_simulator_finds_faults(op, simulated, monkeypatch):
  """With faults put into the kernels, errors exceed their bounds."""
  case = Case(70, 2, 48, 'float32', 'empty', 1)
  place = triton.Place
  with monkeypatch.context() as fault:  # masked tokens, rows past the end
    fault.setattr(place, 'valid', lambda *_: None)
    assert _broken(case, op)
  with monkeypatch.context() as fault:  # a block of rows in the wrong place
    row = place._row
    fault.setattr(place, '_row', lambda self, n: row(self, n) + 1)
    assert _broken(case, op)
  with monkeypatch.context() as fault:  # lanes that belong to the next head
    columns = place._columns
    fault.setattr(place, '_columns', lambda *args: (*columns(*args)[:2], None))
    assert _broken(case, op)
  with monkeypatch.context() as fault:  # a part left out
    fault.setattr(triton, 'cut', lambda length, pairs, rows, **_: (1, 1))
    assert _broken(case, op)


@pytest.mark.full
@pytest.mark.parametrize('op', OPS)
def test_a_single_tf32_product_is_not_enough(op, simulated, monkeypatch):
  case = Case(70, 2, 48, 'float32', 'full', 1)
  split = triton._split
  monkeypatch.setattr(
    triton, '_split', lambda x: (split(x)[0], jnp.zeros_like(x))
  )
  assert _broken(case, op)


def _arrays(op, length=70, width=32, heads=2, dtype='float32', **more):
  case = Case(length, heads, width, dtype, 'ragged', 3, **more)
  (q, k, v, do), named, dfinal = errors.operands(op, case)
  return tuple(map(jnp.nan_to_num, (q, k, v, do))), named, dfinal


def _close(got, want, bound=1e-5):
  for x, y in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    assert relative_rms(x, y) < bound


@pytest.mark.full
@pytest.mark.parametrize(
  'op',
  ['linear', *(pytest.param(op, marks=FULL) for op in OPS[1:])],
)
@pytest.mark.parametrize('width', (32, pytest.param(160, marks=FULL)))
def test_packed_is_apart_and_sums_the_gradient_of_the_bias(
  op, width, simulated
):
  (q, k, v, do), named, _ = _arrays(op, width=width)
  named.pop('initial_state', None)
  qkv = jnp.stack([q, k, v], axis=2)
  bias = jnp.ones(qkv.shape[2:])

  @functools.partial(jax.jit, static_argnums=0)
  def run(function, do, *args):
    call = functools.partial(function, kernel='pallas_triton', **named)
    out, pull = jax.vjp(call, *args)
    return out, pull(do)

  def packed(qkv, bias, **options):
    return PACKED[op](qkv, bias=bias, **options)

  out, (dqkv, dbias) = run(packed, do, qkv, bias)
  want, grads = run(errors.FUNCTIONS[op], do, q, k, v)
  np.testing.assert_array_equal(out, want)
  np.testing.assert_array_equal(dqkv, jnp.stack(grads, axis=2))
  _close(dbias, dqkv.sum((0, 1)))


def _states(op):
  """Returns (mask, (q, k, v, state before the first token))."""
  (q, k, v, _), named, _ = _arrays(op)
  rng = np.random.default_rng(0)
  b, _, h, d = q.shape
  state = jnp.asarray(rng.random((b, h, d, d)), jnp.float32)
  if op == 'linear':
    state = state, jnp.asarray(rng.random((b, h, d)), jnp.float32)
  return named['mask'], (q, k, v, state)


@pytest.mark.parametrize(
  'op', ['linear', *(pytest.param(op, marks=FULL) for op in OPS[1:])]
)
def test_states_and_their_gradients(op, simulated):
  """Results, states and all gradients equal those of plain XLA."""
  mask, arrays = _states(op)

  def run(kernel):
    def whole(q, k, v, state):
      return errors.FUNCTIONS[op](
        q, k, v, kernel=kernel, mask=mask, initial_state=state,
        return_state=True
      )  # fmt: skip

    return with_cosines(whole)(*arrays)

  _close(run('pallas_triton'), run('xla'))


@pytest.mark.every(2)
@pytest.mark.parametrize('scale', (1e-20, 0.0))
def test_no_scale_is_too_small(scale, simulated):
  """Gradients are right even if the scale's square is 0 in float32."""
  (q, k, v, do), named, _ = errors.operands(
    'linear', Case(40, 1, 16, 'float32', 'full', 0)
  )
  named['scale'] = scale
  attend = functools.partial(
    kernels.linear_attention, kernel='pallas_triton', **named
  )
  got = jax.jit(lambda do, *x: jax.vjp(attend, *x)[1](do))(do, q, k, v)
  mask = np.ones(q.shape[:2], bool)
  want = reference.linear(q, k, v, mask, do, scale=scale)[1:4]
  if not scale:
    assert not any(np.any(x) for x in (*got, *want))
    return
  for x, y in zip(got, want, strict=True):
    assert relative_rms(x, y) < 1e-5


@pytest.mark.full
def test_two_halves_are_the_whole(simulated, monkeypatch):
  mask, arrays = _states('lightning')
  attend = functools.partial(
    kernels.lightning_attention, kernel='pallas_triton', return_state=True
  )

  def whole(q, k, v, state):
    return attend(q, k, v, mask=mask, initial_state=state)

  def halves(q, k, v, state):
    half = q.shape[1] // 2
    outs = []
    for part in (slice(None, half), slice(half, None)):
      out, state = attend(
        *(x[:, part] for x in (q, k, v)), mask=mask[:, part],
        initial_state=state,
      )  # fmt: skip
      outs.append(out)
    return jnp.concatenate(outs, axis=1), state

  want = with_cosines(whole)(*arrays)
  _close(with_cosines(halves)(*arrays), want)
  _cut(monkeypatch, 3)
  _close(with_cosines(whole)(*arrays), want)


@FULL
@pytest.mark.parametrize('packed', (False, True))
def test_silu_in_the_kernel_is_silu_outside(packed, simulated):
  """NaN in masked tokens reaches no output and no gradient."""
  case = Case(70, 2, 48, 'float32', 'ragged', 3)
  (q, k, v, _), named, _ = errors.operands('lightning', case)
  arrays = [jnp.stack([q, k, v], axis=2)] if packed else [q, k, v]
  named['slopes'] = jnp.asarray([0.1, 0.5])

  def run(kernel):
    attend = PACKED['lightning'] if packed else kernels.lightning_attention
    return with_cosines(
      functools.partial(attend, activation='silu', kernel=kernel, **named)
    )(*arrays)

  (out, got), (wanted, want) = run('pallas_triton'), run('xla')
  mask = np.asarray(named['mask'])
  _close(out, wanted)
  for x, y in zip(got, want, strict=True):
    assert not np.asarray(x)[~mask].any()
    _close(np.asarray(x)[mask], np.asarray(y)[mask])


@pytest.mark.every(3)
@pytest.mark.parametrize(
  'width, form, parts',
  ((32, 'packed', 2), (48, 'packed', None), (16, 'plain', None)),
)
def test_silu_where_several_gradients_are_made_at_once(
  width, form, parts, simulated, monkeypatch
):
  """Compares bfloat16 results, with SiLU, states and a bias, with float64."""
  _cut(monkeypatch, parts)
  case = Case(150, 2, width, 'bfloat16', 'ragged', 3)
  arrays, named, dfinal = errors.operands('lightning', case)
  named['activation'] = 'silu'
  want = errors.expected('lightning', arrays, named, dfinal)
  got = errors.compiled(
      'lightning', 'pallas_triton', arrays, named, dfinal, form)()
  for name, x in got.items():
    assert relative_rms(x, want[name]) <= errors.bound(name, case.dtype), name


def _mapped(attend, arrays):
  made = jax.vmap(with_cosines(attend))(*(x[:, None] for x in arrays))
  return jax.tree.map(lambda x: x[:, 0], made)


def _again(attend, arrays):
  return with_cosines(jax.remat(attend))(*arrays)


def _on_two_devices(attend, arrays):
  mesh = jax.make_mesh(
    (2,), ('data',), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:2]
  )
  return with_cosines(kernels.sharded(attend, mesh))(*arrays)


TRANSFORMED = [
  ('linear', _on_two_devices),
  ('linear', _mapped),
  *(pytest.param(*x, marks=FULL) for x in (
    ('linear', _again),
    ('lightning', _on_two_devices),
    ('lightning', _mapped),
    ('lightning', _again),
  )),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize('op, how', TRANSFORMED)
def test_under_transformations(op, how, simulated):
  """JAX transformations give the same results as a plain call."""
  arrays, named, _ = _arrays(op, length=33, width=16, batch=4)
  slopes = {n: x for n, x in named.items() if n == 'slopes'}
  attend = functools.partial(
    errors.FUNCTIONS[op], kernel='pallas_triton', **slopes
  )
  want = with_cosines(attend)(*arrays[:3])
  _close(how(attend, arrays[:3]), want)


def test_relu_without_eps_and_normaliser(simulated):
  """With `eps` = 0 the padding of the last block must not give 0 / 0."""
  case = Case(70, 2, 32, 'float32', 'full', 3)
  arrays, _, _ = errors.operands('linear', case)

  @functools.partial(jax.jit, static_argnums=0)
  def run(kernel, q, k, v, do):
    call = functools.partial(
      kernels.linear_attention, feature_map='relu', eps=0.0, kernel=kernel
    )
    out, pull = jax.vjp(call, q, k, v)
    return out, *pull(do)

  _close(run('pallas_triton', *arrays), run('xla', *arrays))


@pytest.mark.parametrize('op', OPS)
def test_refusals_name_the_argument(op):
  supported = dispatch.backend(op, 'pallas_triton').supported
  with kernels.target('gpu'):
    for width in (16, 48, 256):
      supported((1, 100, 2, width), jnp.float32)
    for width in (8, 257):
      with pytest.raises(NotImplementedError, match=f'Dh .* got {width}'):
        supported((1, 100, 2, width), jnp.bfloat16)
  with pytest.raises(NotImplementedError, match='compute capability'):
    supported((1, 100, 2, 64), jnp.bfloat16)


def test_older_devices_are_refused(monkeypatch):
  for capability, good in (('7.5', False), ('8.0', True), ('12.0', True)):
    device = type('Gpu', (), {'compute_capability': capability})()
    monkeypatch.setattr(triton, '_local_gpu', lambda d=device: d)
    if good:
      triton._check_device()
    else:
      with pytest.raises(NotImplementedError, match='8.0 or above, got 7.5'):
        triton._check_device()
