"""Compares the fused RMS norm and projection with float64.

The Triton kernels run in Pallas' interpreter. Unwritten memory and memory past
the end of an array hold NaN.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip('jax.experimental.pallas.triton')

from lra import kernels
from lra.kernels import reference, triton
from lra.kernels.norm_project import pallas_triton
from tests.helpers.errors import relative_rms
from tools import h200, triton_report

FULL = pytest.mark.full
# Largest relative errors of y, do, dW and db. In bfloat16 the kernel rounds W
# and r dy; o and dy are bfloat16 already.
BOUND = {'float32': (1e-5,) * 4, 'bfloat16': (4e-3, 6e-3, 4e-3, 1e-5)}
# (kernel, dtype, B, L, E, D)
CASES = [
  ('xla', 'float32', 2, 37, 48, 80),
  ('xla', 'bfloat16', 2, 37, 64, 64),
  ('pallas_triton', 'float32', 2, 37, 48, 80),
  ('pallas_triton', 'bfloat16', 3, 77, 136, 72),
]
MORE = [
  ('pallas_triton', dtype, 1, length, e, d)
  for dtype in ('float32', 'bfloat16')
  for length, e, d in (
    (1, 16, 16), (128, 64, 64), (129, 256, 256), (200, 512, 512), (65, 520, 24),
    (130, 1024, 128), (64, 8, 200), (300, 40, 1040),
  )
]  # fmt: skip


@pytest.fixture
def simulated():
  with kernels.target('gpu', interpret=True):
    yield


def _operands(dtype, batch, length, e, d, seed=0):
  """Returns o, weight, bias, dy; row norms of o vary by 10^4."""
  rng = np.random.default_rng(seed)
  sizes = 10.0 ** rng.uniform(-2, 2, (batch, length, 1))
  o = jnp.asarray(rng.normal(size=(batch, length, e)) * sizes, dtype)
  weight = jnp.asarray(rng.normal(size=(e, d)) / e**0.5, jnp.float32)
  bias = jnp.asarray(rng.normal(size=d), jnp.float32)
  # dy is aligned with the output: the norm's gradient is then not negligible.
  dy = np.asarray(o, np.float64) / sizes @ np.asarray(weight, np.float64)
  dy = jnp.asarray(dy + rng.normal(size=dy.shape), dtype)
  return o, weight, bias, dy


def _run(kernel, o, weight, bias, dy, function=kernels.norm_project):
  """Returns y and the gradients of o, weight and bias."""

  def project(o, weight, bias):
    return function(o, weight=weight, bias=bias, kernel=kernel)

  @jax.jit
  def both(*args):
    y, pull = jax.vjp(project, *args)
    return y, *pull(dy)

  return both(o, weight, bias)


def _errors(kernel, dtype, *shape):
  operands = _operands(dtype, *shape)
  got = _run(kernel, *operands)
  # Scale each row's errors, so that rows of small norm count as much.
  want = reference.norm_project(*operands)
  size = np.sqrt(np.mean(want[1] ** 2, axis=-1, keepdims=True)) + 1e-30
  got, want = ([y, do / size, *rest] for y, do, *rest in (got, want))
  return [relative_rms(x, y) for x, y in zip(got, want, strict=True)]


def _within(errors, dtype):
  return all(x < b for x, b in zip(errors, BOUND[dtype], strict=True))


@pytest.mark.every(3)
@pytest.mark.parametrize(
  'case', CASES + [pytest.param(x, marks=FULL) for x in MORE], ids=str
)
def test_errors(case, simulated):
  kernel, dtype, *shape = case
  found = _errors(kernel, dtype, *shape)
  assert _within(found, dtype), found


@pytest.mark.every(3)
@pytest.mark.parametrize('kernel', ('xla', 'pallas_triton'))
@pytest.mark.parametrize('dtype, bias', [('float32', 1e4), ('bfloat16', 256.0)])
def test_a_large_bias_costs_no_gradient_its_precision(
  kernel, dtype, bias, simulated
):
  o, weight, _, dy = _operands(dtype, 2, 37, 64, 64)
  operands = o, weight, jnp.full(64, bias), dy
  (_, *got), (_, *want) = (
    _run(kernel, *operands),
    reference.norm_project(*operands),
  )
  for x, y, bound in zip(got, want, BOUND[dtype][1:], strict=True):
    assert relative_rms(x, y) < bound


@pytest.mark.every(2)
@pytest.mark.parametrize('dtype', ('float32', 'bfloat16'))
def test_blocks_of_columns(dtype, simulated, monkeypatch):
  """The backward kernel may split a row into several blocks of columns."""
  size = pallas_triton._Size(16, 32, 16, 4, 2)
  monkeypatch.setattr(pallas_triton, '_backward_size', lambda *_: size)
  found = _errors('pallas_triton', dtype, 1, 37, 72, 40)
  assert _within(found, dtype), found


def test_reference_has_the_gradients_of_what_it_computes():
  """Compares the reference's gradients with finite differences."""
  operands = [
    np.asarray(x, np.float64) for x in _operands('float32', 1, 3, 4, 5)
  ]
  *operands, dy = operands
  _, *grads = reference.norm_project(*operands, dy)
  rng = np.random.default_rng(1)
  for i, grad in enumerate(grads):
    step = rng.normal(size=grad.shape) * 1e-6 * np.abs(operands[i])
    there, back = (
      reference.norm_project(*operands[:i], operands[i] + sign * step,
                             *operands[i + 1:], dy)[0]
      for sign in (1, -1)
    )  # fmt: skip
    np.testing.assert_allclose(
      np.sum((there - back) * dy) / 2, np.sum(grad * step), rtol=1e-5
    )


def _broken():
  dtype = 'float32'
  return not _within(_errors('pallas_triton', dtype, 2, 37, 48, 80), dtype)


@pytest.mark.full
def test_faults_are_found(simulated, monkeypatch):
  """The comparison with float64 notices faults put into the kernels."""
  place, rows = triton.Place, pallas_triton.rows
  assert not _broken()
  with monkeypatch.context() as fault:  # columns past the end are not masked
    columns = place._columns
    fault.setattr(place, '_columns', lambda *args: (*columns(*args)[:2], None))
    assert _broken()
  with monkeypatch.context() as fault:  # a block of rows in the wrong place
    row = place._row
    fault.setattr(place, '_row', lambda self, n: row(self, n) + 1)
    assert _broken()
  with monkeypatch.context() as fault:  # rows past the end are not masked
    fault.setattr(place, 'valid', lambda *_: None)
    assert _broken()
  with monkeypatch.context() as fault:  # a block left out
    fault.setattr(rows, '_block', lambda shape, k: (0, shape.columns))
    assert _broken()


def test_over_a_mesh_weights_get_the_gradient_of_the_whole_batch(simulated):
  operands = _operands('float32', 4, 21, 32, 48)
  mesh = jax.make_mesh(
    (2,), ('data',), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:2]
  )
  over = kernels.sharded(kernels.norm_project, mesh)
  got = _run('pallas_triton', *operands, function=over)
  want = _run('pallas_triton', *operands)
  for x, y in zip(got, want, strict=True):
    assert relative_rms(x, y) < 1e-5


@pytest.mark.full
def test_under_transformations(simulated):
  operands = _operands('float32', 3, 21, 32, 48)
  o, weight, bias, dy = operands
  want = _run('pallas_triton', *operands)
  again = jax.remat(
    functools.partial(kernels.norm_project, kernel='pallas_triton')
  )
  got = _run(None, *operands, function=lambda o, kernel, **w: again(o, **w))
  for x, y in zip(got, want, strict=True):
    assert relative_rms(x, y) < 1e-6

  def one(o):
    return kernels.norm_project(
      o[None], weight=weight, bias=bias, kernel='pallas_triton'
    )[0]

  assert relative_rms(jax.vmap(one)(o), want[0]) < 1e-6


def test_refusals_name_the_argument():
  o, weight, bias, _ = _operands('float32', 1, 4, 8, 6)
  run = kernels.norm_project
  with pytest.raises(ValueError, match=r'o must be a non-empty .*\[B, L, E\]'):
    run(o[0], weight=weight, bias=bias)
  with pytest.raises(ValueError, match='o must be float32 or bfloat16'):
    run(o.astype(jnp.float16), weight=weight, bias=bias)
  for bad in (weight[:-1], weight[0], weight.astype(jnp.bfloat16)):
    with pytest.raises(ValueError, match='weight must be float32'):
      run(o, weight=bad, bias=bias)
  with pytest.raises(ValueError, match='bias must be float32'):
    run(o, weight=weight, bias=bias[:-1])
  with pytest.raises(ValueError, match='kernel must be'):
    run(o, weight=weight, bias=bias, kernel='dense')
  with pytest.raises(NotImplementedError, match='needs a gpu device'):
    run(o, weight=weight, bias=bias, kernel='pallas_triton')
  with pytest.raises(NotImplementedError, match='compute capability'):
    pallas_triton.supported(o.shape, o.dtype)


COMPILED = {
  'a100': (64, 128, 256),
  'h200': (64, 128, 256),
  'b200': (64, 128, 256),
  'rtx5090': (128,),
}


@pytest.mark.full
@pytest.mark.parametrize('card', COMPILED)
def test_compiled(card):
  """Compiled kernels spill and copy nothing and use tensor cores (or TF32).

  `COMPILED` lists the width of one of four heads: E and D are 4 times as wide.
  """
  reason = h200.missing() or (None if triton_report.ptxas() else 'no ptxas')
  if reason:
    pytest.skip(reason)
  rows = triton_report.reports(card, ('norm_project',), COMPILED[card])
  assert len(rows) == 2 * len(COMPILED[card])  # two dtypes
  for row in rows:
    assert row['copies'] == 0, row
    names = {kernel['name'] for kernel in row['kernels']}
    assert {'norm_project', 'norm_project_gradients'} <= names, row
    for kernel in row['kernels']:
      assert not kernel['spills'], (kernel, row)
      exact = ['tf32' in product for product in kernel['products']]
      assert exact == [row['dtype'] == 'float32'] * len(exact), row
