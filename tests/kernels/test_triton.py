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
from lra.kernels import triton
from lra.kernels.norm_project import pallas_triton as norm_project
from tests.helpers import cuda, errors, reference
from tests.helpers.errors import FUNCTIONS, PACKED, Case, relative_rms
from tests.helpers.gradients import with_cosines, with_gradients

OPS = tuple(FUNCTIONS)
FULL = pytest.mark.full
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
      for o, op in enumerate(OPS):
        i = 2 * n + m + o
        if (n + m + o) % 2 == 0:
          heads = 3 if width < 128 else 1
          yield op, Case(LENGTHS[i % 6], heads, width, dtype, MASKS[i % 3],
                         i), (None, 2)[i % 2]


@pytest.fixture(autouse=True)
def simulated():
  with kernels.target('gpu', interpret=True):
    yield


def _cut(monkeypatch, parts):
  def cut(length, pairs, rows, **_):
    blocks = -(-length // rows)
    per_part = -(-blocks // parts)
    return -(-blocks // per_part), per_part

  if parts is not None:
    monkeypatch.setattr(triton, 'cut', cut)


@pytest.mark.every(2)
@pytest.mark.parametrize(
  'op, case, parts',
  QUICK + [pytest.param(*c, marks=FULL) for c in _cases()], ids=str)
def test_errors(op, case, parts, monkeypatch):
  _cut(monkeypatch, parts)
  found = errors.measure(op, 'pallas_triton', case)
  assert errors.within(found, case.dtype), (op, case, found)




def _close(got, want, bound=1e-5):
  for x, y in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    assert relative_rms(x, y) < bound


@FULL
@pytest.mark.parametrize('op', OPS)
@pytest.mark.parametrize('width', (32, 160))
def test_packed_is_apart_and_sums_the_gradient_of_the_bias(op, width):
  (q, k, v, do), named, _ = errors.operands(
    op, Case(70, 2, width, 'float32', 'ragged', 3))
  q, k, v, do = map(jnp.nan_to_num, (q, k, v, do))
  named.pop('initial_state', None)
  named['kernel'] = 'pallas_triton'
  qkv = jnp.stack([q, k, v], axis=2)
  out, dqkv, dbias = with_gradients(
    lambda qkv, bias: PACKED[op](qkv, bias=bias, **named))(
      do, qkv, jnp.ones(qkv.shape[2:]))
  want, *grads = with_gradients(functools.partial(FUNCTIONS[op], **named))(
    do, q, k, v)
  np.testing.assert_array_equal(out, want)
  np.testing.assert_array_equal(dqkv, jnp.stack(grads, axis=2))
  _close(dbias, dqkv.sum((0, 1)))


@pytest.mark.parametrize('op', [
  'linear', *(pytest.param(op, marks=FULL) for op in OPS[1:])])
def test_states_and_their_gradients(op, monkeypatch):
  """Results, states and all gradients equal those of plain XLA."""
  case = Case(70, 2, 32, 'float32', 'ragged', 3, form='state')
  (q, k, v, _), named, _ = errors.operands(op, case)
  arrays = *map(jnp.nan_to_num, (q, k, v)), named['initial_state']

  def run(kernel):
    return with_cosines(lambda q, k, v, state: FUNCTIONS[op](
      q, k, v, kernel=kernel, mask=named['mask'], initial_state=state,
      return_state=True))(*arrays)

  want = run('xla')
  _close(run('pallas_triton'), want)
  if op == 'lightning':
    _cut(monkeypatch, 3)
    _close(run('pallas_triton'), want)


@pytest.mark.every(2)
@pytest.mark.parametrize('scale', (1e-20, 0.0))
def test_no_scale_is_too_small(scale):
  """Gradients are right even if the scale's square is 0 in float32."""
  (q, k, v, do), named, _ = errors.operands(
    'linear', Case(40, 1, 16, 'float32', 'full', 0))
  attend = functools.partial(kernels.linear_attention, scale=scale,
                             kernel='pallas_triton', **named)
  _, *got = with_gradients(attend)(do, q, k, v)
  mask = np.ones(q.shape[:2], bool)
  want = reference.linear(q, k, v, mask, do, scale=scale)[1:4]
  if not scale:
    assert not any(np.any(x) for x in (*got, *want))
    return
  _close(got, want)


@pytest.mark.every(3)
@pytest.mark.parametrize('width, form, parts', (
  (32, 'packed', 2), (48, 'packed', None), (16, 'plain', None)))
def test_silu_with_several_gradients_at_once(width, form, parts, monkeypatch):
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


def test_relu_without_eps_and_normaliser():
  """With `eps` = 0 the padding of the last block must not give 0 / 0."""
  *arrays, do = errors.operands(
    'linear', Case(70, 2, 32, 'float32', 'full', 3))[0]
  got, want = (with_gradients(functools.partial(
    kernels.linear_attention, feature_map='relu', eps=0.0, kernel=kernel))(
      do, *arrays) for kernel in ('pallas_triton', 'xla'))  # fmt: skip
  _close(got, want)


# The fused RMS norm and projection. Largest relative errors of y, do, dW and
# db. In bfloat16 the kernel rounds W and r dy; o and dy are bfloat16 already.
BOUND = {'float32': (1e-5,) * 4, 'bfloat16': (4e-3, 6e-3, 4e-3, 1e-5)}
# (kernel, dtype, B, L, E, D)
NORMS = [
  ('xla', 'float32', 2, 37, 48, 80), ('xla', 'bfloat16', 2, 37, 64, 64),
  ('pallas_triton', 'float32', 2, 37, 48, 80),
  ('pallas_triton', 'bfloat16', 3, 77, 136, 72),
]
MORE_NORMS = [
  ('pallas_triton', dtype, 1, *sizes) for dtype in ('float32', 'bfloat16')
  for sizes in (
    (1, 16, 16), (128, 64, 64), (129, 256, 256), (200, 512, 512), (65, 520, 24),
    (130, 1024, 128), (64, 8, 200), (300, 40, 1040))
]


def _norm(dtype, batch, length, e, d, seed=0):
  """Returns o, weight, bias, dy; row norms of o vary by 10^4."""
  rng = np.random.default_rng(seed)
  sizes = 10.0 ** rng.uniform(-2, 2, (batch, length, 1))
  o = jnp.asarray(rng.normal(size=(batch, length, e)) * sizes, dtype)
  weight = jnp.asarray(rng.normal(size=(e, d)) / e**0.5, jnp.float32)
  bias = jnp.asarray(rng.normal(size=d), jnp.float32)
  # dy is aligned with the output: the norm's gradient is then not negligible.
  dy = np.asarray(o, np.float64) / sizes @ np.asarray(weight, np.float64)
  return o, weight, bias, jnp.asarray(dy + rng.normal(size=dy.shape), dtype)


def _run_norm(kernel, o, weight, bias, dy):
  return with_gradients(lambda o, weight, bias: kernels.norm_project(
    o, weight=weight, bias=bias, kernel=kernel))(dy, o, weight, bias)


def _errors(kernel, dtype, *shape):
  operands = _norm(dtype, *shape)
  got, want = _run_norm(kernel, *operands), reference.norm_project(*operands)
  # Scale each row's errors, so that rows of small norm count as much.
  size = np.sqrt(np.mean(want[1] ** 2, axis=-1, keepdims=True)) + 1e-30
  got, want = ([y, do / size, *rest] for y, do, *rest in (got, want))
  return [relative_rms(x, y) for x, y in zip(got, want, strict=True)]


def _within(errors, dtype):
  return all(x < b for x, b in zip(errors, BOUND[dtype], strict=True))


@pytest.mark.every(3)
@pytest.mark.parametrize(
  'case', NORMS + [pytest.param(x, marks=FULL) for x in MORE_NORMS], ids=str)
def test_errors_of_norm_project(case):
  found = _errors(*case)
  assert _within(found, case[1]), found


@pytest.mark.every(3)
@pytest.mark.parametrize('kernel', ('xla', 'pallas_triton'))
@pytest.mark.parametrize('dtype, bias', [('float32', 1e4), ('bfloat16', 256.0)])
def test_a_large_bias_costs_no_gradient_its_precision(kernel, dtype, bias):
  o, weight, _, dy = _norm(dtype, 2, 37, 64, 64)
  operands = o, weight, jnp.full(64, bias), dy
  found = [relative_rms(x, y) for x, y in zip(
    _run_norm(kernel, *operands), reference.norm_project(*operands),
    strict=True)]  # fmt: skip
  assert _within([0, *found[1:]], dtype), found


@pytest.mark.every(2)
@pytest.mark.parametrize('dtype', ('float32', 'bfloat16'))
def test_blocks_of_columns(dtype, monkeypatch):
  """The backward kernel may split a row into several blocks of columns."""
  size = norm_project._Size(16, 32, 16, 4, 2)
  monkeypatch.setattr(norm_project, '_backward_size', lambda *_: size)
  found = _errors('pallas_triton', dtype, 1, 37, 72, 40)
  assert _within(found, dtype), found


@pytest.mark.parametrize('pairs', (1, 8, 128, 1024))
@pytest.mark.parametrize('length', (1, 32, 33, 500, 4001, 65536))
def test_parts_cover_the_sequence_and_fill_the_device(pairs, length):
  blocks = -(-length // 32)
  for card in cuda.CARDS.values():
    with card.lowering():
      assert triton.cores() == card.cores
      parts, per_part = triton.cut(length, pairs, 32, per_core=2)
    assert (parts - 1) * per_part < blocks <= parts * per_part
    assert parts == 1 or per_part * 32 >= triton.LEAST
    if length // triton.LEAST * pairs >= 2 * card.cores:
      assert parts * pairs >= 1.5 * card.cores
