"""Tests the operations under JAX transformations, and lightning's state."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jax.test_util import check_grads

from lra import kernels
from tests.helpers import errors
from tests.helpers.errors import relative_rms
from tests.helpers.gradients import with_cosines

OPS = tuple(errors.FUNCTIONS)
# SimpleTRON on a TPU runs the kernels of linear attention.
PAIRS = [(op, 'xla') for op in OPS] + [
  ('linear', 'pallas_tpu'),
  ('lightning', 'pallas_tpu'),
]
AUTO = AxisType.Auto


@pytest.fixture
def place(kernel):
  """Runs Pallas in the plain interpreter: the simulator fails under remat."""
  if kernel == 'xla':
    yield
  else:
    with kernels.target('tpu', interpret=True):
      yield


def each_pair(quick=()):
  """Parametrises over PAIRS; pairs not in `quick` need --full."""

  def mark(test):
    pairs = [
      pytest.param(*pair, marks=[] if pair in quick else pytest.mark.full)
      for pair in PAIRS
    ]
    test = pytest.mark.parametrize('op, kernel', pairs)(test)
    return pytest.mark.usefixtures('place')(test)

  return mark


def each_kernel(test):
  names = ('xla', pytest.param('pallas_tpu', marks=pytest.mark.full))
  test = pytest.mark.parametrize('kernel', names)(test)
  return pytest.mark.usefixtures('place')(test)


def _arrays(shape, count=3, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.standard_normal((count, *shape)).astype(np.float32)
  return [jnp.asarray(a) for a in x]


def _mask(batch, length):
  return jnp.arange(length) < jnp.arange(length, length - batch, -1)[:, None]


def _attend(op, kernel, **options):
  def attend(q, k, v, **more):
    return errors.FUNCTIONS[op](
      q, k, v, kernel=kernel, **options, **more
    )

  return attend


def _same(got, want, bound=1e-5):
  for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    assert relative_rms(x, y) < bound


@each_kernel
@pytest.mark.parametrize(
  'cut', (pytest.param(1, marks=pytest.mark.full), 101)
)
def test_a_split_sequence_is_the_whole(kernel, cut):
  q, k, v = _arrays((2, 165, 2, 32))
  mask = _mask(2, 165)
  attend = _attend(
    'lightning',
    kernel,
    slopes=jnp.array([0.0, 0.3]),
    return_state=True,
    scale=0.7,
  )

  def whole(q, k, v):
    return attend(q, k, v, mask=mask)

  def halves(q, k, v):
    first, second = ([x[:, :cut] for x in (q, k, v, mask)],
                     [x[:, cut:] for x in (q, k, v, mask)])  # fmt: skip
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


@pytest.mark.full
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


@each_pair()
def test_gradients_are_those_of_finite_differences(op, kernel):
  x = [0.5 * a for a in _arrays((1, 5, 1, 8))]
  attend = _attend(op, kernel)
  check_grads(attend, x, order=1, modes=['rev'], atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(
  'op', [pytest.param(op, marks=[] if op == 'linear' else pytest.mark.full)
         for op in OPS],
)  # fmt: skip
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


@pytest.mark.full
@each_pair(quick=[('linear', 'pallas_tpu')])
def test_sharded_over_the_batch(op, kernel):
  mesh = jax.make_mesh((4,), ('data',), axis_types=(AUTO,))
  q, k, v = _arrays((4, 70, 2, 16))
  options = {'mask': _mask(4, 70)}
  if op == 'lightning':
    (options['initial_state'],) = _arrays((4, 2, 16, 16), 1)
    options['slopes'] = jnp.array([0.0, 0.5])
  attend = _attend(op, kernel)
  want = with_cosines(lambda *x: attend(*x, **options))(q, k, v)
  split = NamedSharding(mesh, PartitionSpec('data'))
  q, k, v = (jax.device_put(x, split) for x in (q, k, v))

  def over(mesh):
    attend_split = kernels.sharded(attend, mesh)
    return with_cosines(lambda *x: attend_split(*x, **options))

  got = over(mesh)(q, k, v)
  assert got[0].sharding.is_equivalent_to(split, 4)
  _same(got, want)
  with jax.set_mesh(mesh):
    _same(over(None)(q, k, v), want)


@pytest.mark.every(3, 2)
@pytest.mark.parametrize('op', OPS)
def test_a_batch_that_cannot_be_split_keeps_its_options(op):
  mesh = jax.make_mesh((4,), ('data',), axis_types=(AUTO,))
  q, k, v = _arrays((3, 20, 2, 16))
  options = {'mask': _mask(3, 20)}
  if op == 'lightning':
    (options['initial_state'],) = _arrays((3, 2, 16, 16), 1)
    options['slopes'] = jnp.array([0.0, 0.5])
  plain = _attend(op, 'xla')
  attend = jax.jit(plain)
  want = attend(q, k, v, **options)
  split = jax.jit(kernels.sharded(plain, mesh))
  _same(split(q, k, v, **options), want)
  for name in options:  # each option changes the result
    fewer = {n: x for n, x in options.items() if n != name}
    assert relative_rms(attend(q, k, v, **fewer), want) > 1e-2


@pytest.mark.every(5)
@pytest.mark.parametrize('batch, axes', [
  (3, {'data': 4}), (4, {'model': 2}), (4, {'sequence': 2}),
  (4, {'model': 2, 'sequence': 2}),
])  # fmt: skip
@pytest.mark.parametrize('name', (*OPS, 'softmax'))
def test_a_call_that_nothing_splits_is_lowered_for_a_tpu(name, batch, axes):
  """The Pallas call runs whole on each device: XLA cannot partition it."""
  count = int(np.prod(list(axes.values())))
  mesh = jax.make_mesh(
    tuple(axes.values()), tuple(axes), (AUTO,) * len(axes),
    devices=jax.devices()[:count],
  )  # fmt: skip
  x = jax.ShapeDtypeStruct((batch, 40, 2, 64), jnp.bfloat16)
  attend = getattr(kernels, f'{name}_attention')

  def text(kernel):
    split = kernels.sharded(functools.partial(attend, mask=mask))
    run = jax.jit(lambda x: split(x, x, x, kernel=kernel))
    return run.trace(x).lower(lowering_platforms=('tpu',)).as_text()

  mask = jnp.ones((batch, 40), bool)
  with kernels.target('tpu'), jax.set_mesh(mesh):
    assert 'tpu_custom_call' in text('auto')
    plain = text('chunked' if name == 'softmax' else 'xla')
  assert 'tpu_custom_call' not in plain
  assert 'manual_computation' not in plain  # for the compiler to partition


@pytest.mark.every(2)
@pytest.mark.parametrize('axes', (('data', 'model'), ('model', 'other')))
def test_gradients_of_a_call_that_nothing_splits(axes):
  mesh = jax.make_mesh((2, 2), axes, axis_types=(AUTO, AUTO))
  q, k, v = _arrays((3, 20, 2, 16))
  split = kernels.sharded(kernels.linear_attention, mesh)
  mask = _mask(3, 20)

  def attend(q, k, v):
    return split(q, k, v, mask=mask)

  want = with_cosines(_attend('linear', 'xla', mask=mask))(q, k, v)
  with kernels.target('tpu', interpret=True):
    assert 'shard_map' in str(jax.make_jaxpr(attend)(q, k, v))
    _same(with_cosines(attend)(q, k, v), want)


def test_sharded_without_need_is_plain():
  one = jax.make_mesh((1,), ('data',), (AUTO,), devices=jax.devices()[:1])
  attend = jax.jit(kernels.linear_attention)
  assert kernels.sharded(attend) is attend
  assert kernels.sharded(attend, one) is attend
  q, k, v = _arrays((3, 9, 1, 8))
  four = jax.make_mesh((4,), ('data',), axis_types=(AUTO,))
  _same(kernels.sharded(attend, four)(q, k, v), attend(q, k, v))

  def inside(q, k, v):
    return kernels.sharded(attend)(q, k, v)

  split = PartitionSpec('data')
  x = [jnp.concatenate([a, a[:1]]) for a in (q, k, v)]
  with jax.set_mesh(four):
    got = jax.jit(jax.shard_map(inside, in_specs=split, out_specs=split))(*x)
  _same(got, attend(*x))


@pytest.mark.parametrize('op', OPS)
def test_xla_is_partitioned_by_the_compiler(op):
  mesh = jax.make_mesh((4,), ('data',), axis_types=(AUTO,))
  split = NamedSharding(mesh, PartitionSpec('data'))
  x = jax.ShapeDtypeStruct((8, 70, 2, 16), jnp.float32, sharding=split)
  attend = _attend(op, 'xla')
  step = jax.jit(with_cosines(attend), out_shardings=split)
  program = step.lower(x, x, x).compile().as_text()
  assert 'all-gather' not in program
  assert 'all-reduce' not in program


def test_values_of_another_width_are_a_part_of_wider_ones():
  q, k, v = _arrays((2, 33, 2, 32))
  attend = _attend('linear', 'xla', mask=_mask(2, 33))
  part = with_cosines(lambda q, k, v: attend(q, k, v))
  whole = with_cosines(lambda q, k, v: attend(q, k, v)[..., :8])
  out, (dq, dk, dv) = whole(q, k, v)
  _same(part(q, k, v[..., :8]), (out, (dq, dk, dv[..., :8])))
