"""Tests the operations under JAX transformations, and their states."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from tests.helpers.errors import EVERY, FUNCTIONS, relative_rms
from tests.helpers.gradients import with_cosines

FULL = pytest.mark.full
OPS = tuple(FUNCTIONS)
PLATFORMS = {'pallas_tpu': 'tpu', 'splash': 'tpu', 'pallas_triton': 'gpu'}
# SimpleTRON runs the kernels of linear attention.
PAIRS = [*((op, 'xla') for op in OPS),
         *((op, kernel) for kernel in ('pallas_tpu', 'pallas_triton')
           for op in ('linear', 'lightning')), ('softmax', 'splash')]
KERNELS = ('xla', pytest.param('pallas_tpu', marks=FULL),
           pytest.param('pallas_triton', marks=FULL))


@pytest.fixture
def place(kernel):
  """Runs Pallas in the plain interpreter: the simulator fails under remat."""
  with (kernels.target(PLATFORMS[kernel], interpret=True)
        if kernel in PLATFORMS else contextlib.nullcontext()):
    yield


def each_pair(quick=()):
  """Parametrises over PAIRS; pairs not in `quick` need --full."""
  def mark(test):
    pairs = [pytest.param(*pair, marks=[] if pair in quick else FULL)
             for pair in PAIRS]
    test = pytest.mark.parametrize('op, kernel', pairs)(test)
    return pytest.mark.usefixtures('place')(test)

  return mark


def each_kernel(test):
  test = pytest.mark.parametrize('kernel', KERNELS)(test)
  return pytest.mark.usefixtures('place')(test)


def _arrays(shape, count=3, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.standard_normal((count, *shape)).astype(np.float32)
  return [jnp.asarray(a) for a in x]


def _mask(batch, length):
  return jnp.arange(length) < jnp.arange(length, length - batch, -1)[:, None]


def _attend(op, kernel, **options):
  return functools.partial(EVERY[op], kernel=kernel, **options)


def _same(got, want, bound=1e-5):
  for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    assert relative_rms(x, y) < bound


@each_kernel
@pytest.mark.parametrize('cut', (pytest.param(1, marks=FULL), 101))
def test_a_split_sequence_is_the_whole(kernel, cut):
  q, k, v = _arrays((2, 165, 2, 32))
  mask = _mask(2, 165)
  attend = _attend('lightning', kernel, slopes=jnp.array([0.0, 0.3]),
                   return_state=True, scale=0.7)

  def whole(q, k, v):
    return attend(q, k, v, mask=mask)

  def halves(q, k, v):
    first, second = ([x[:, :cut] for x in (q, k, v, mask)],
                     [x[:, cut:] for x in (q, k, v, mask)])
    out, state = attend(*first[:3], mask=first[3])
    more, state = attend(*second[:3], mask=second[3], initial_state=state)
    return jnp.concatenate([out, more], axis=1), state

  _same(with_cosines(halves)(q, k, v), with_cosines(whole)(q, k, v))


@each_pair()
def test_vmap_gives_what_single_calls_give(op, kernel):
  q, k, v = _arrays((3, 2, 40, 2, 16))
  attend = with_cosines(_attend(op, kernel))
  got = jax.vmap(attend, in_axes=(0, 0, None))(q, k, v[0])
  want = [attend(q[i], k[i], v[0]) for i in range(3)]
  _same(got, jax.tree.map(lambda *x: jnp.stack(x), *want))


@FULL
@each_kernel
def test_vmap_over_slopes(kernel):
  q, k, v = _arrays((1, 20, 2, 16))
  slopes = jnp.array([[0.0, 1.0], [0.5, 0.1]])
  attend = _attend('lightning', kernel)
  got = jax.vmap(lambda s: attend(q, k, v, slopes=s))(slopes)
  _same(got, jnp.stack([attend(q, k, v, slopes=s) for s in slopes]))


@each_pair()
def test_jit_and_remat_change_nothing(op, kernel):
  q, k, v = _arrays((2, 70, 2, 16))
  attend = _attend(op, kernel, mask=_mask(2, 70))
  want = with_cosines(attend)(q, k, v)
  _same(with_cosines(jax.checkpoint(attend))(q, k, v), want)
  _same(attend(q, k, v), want[0])


@FULL
def test_norm_project_under_transformations():
  o, (weight, bias) = _arrays((3, 21, 32), 1)[0], _arrays((32, 32), 2)
  named = {'weight': weight, 'bias': bias[0], 'kernel': 'pallas_triton'}
  project = functools.partial(kernels.norm_project, **named)
  with kernels.target('gpu', interpret=True):
    want = with_cosines(project)(o)
    _same(with_cosines(jax.remat(project))(o), want, 1e-6)
    _same(jax.vmap(lambda x: project(x[None])[0])(o), want[0], 1e-6)


@pytest.mark.parametrize('op', [
  'linear', *(pytest.param(op, marks=FULL) for op in OPS[1:])])
def test_gradients_of_gradients_meet_nothing_masked(op):
  arrays, mask = _arrays((2, 9, 2, 8)), _mask(2, 9) & (jnp.arange(9) != 3)
  attend = _attend(op, 'xla', mask=mask)

  @jax.jit
  @functools.partial(jax.grad, argnums=(0, 1, 2))
  def twice(*args):
    first = jax.grad(lambda *x: (attend(*x) ** 2).sum(), argnums=(0, 1, 2))
    return sum(jnp.sin(g).sum() for g in first(*args))

  hidden = (jnp.where(mask[..., None, None], x, jnp.nan) for x in arrays)
  for x, y in zip(twice(*hidden), twice(*arrays), strict=True):
    np.testing.assert_array_equal(x, y)


def test_values_of_another_width_are_a_part_of_wider_ones():
  q, k, v = _arrays((2, 33, 2, 32))
  attend = _attend('linear', 'xla', mask=_mask(2, 33))
  part = with_cosines(lambda q, k, v: attend(q, k, v))
  whole = with_cosines(lambda q, k, v: attend(q, k, v)[..., :8])
  out, (dq, dk, dv) = whole(q, k, v)
  _same(part(q, k, v[..., :8]), (out, (dq, dk, dv[..., :8])))
