"""Compares sequences split over several devices with one device."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from lra import kernels
from tests.helpers.errors import relative_rms

OPS = ('linear', 'simpletron', 'lightning')
BATCH, LENGTH, HEADS, WIDTH = 4, 70, 2, 16  # no mesh divides the length
OPTIONS = {
  'linear': {},
  'simpletron': {},
  'lightning': {'activation': 'silu', 'slopes': jnp.array([0.01, 0.4])},
}


def _mesh(data, sequence):
  return jax.make_mesh(
    (data, sequence), ('data', 'sequence'), axis_types=(AxisType.Auto,) * 2
  )


def _arrays(packed):
  rng = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(rng.standard_normal(shape, np.float32))
  if packed:
    return draw(BATCH, LENGTH, 3, HEADS, WIDTH), draw(3, HEADS, WIDTH)
  return tuple(draw(BATCH, LENGTH, HEADS, WIDTH) for _ in range(3))


def _function(op, packed, kernel, mesh=None):
  """Returns a function arrays -> output; if `packed`, it also takes a bias."""
  attend = getattr(kernels, f'{op}_attention' + '_packed' * packed)
  # The mask has gaps; one example ends within the first device's part.
  mask = np.random.default_rng(1).random((BATCH, LENGTH)) < 0.8
  mask[1, 10:] = False
  attend = kernels.sharded(attend, mesh) if mesh else attend

  def run(*arrays):
    options = {'mask': jnp.asarray(mask), 'kernel': kernel, **OPTIONS[op]}
    if packed:
      qkv, bias = arrays
      options['bias'] = bias
      return attend(qkv + jax.lax.stop_gradient(bias), **options)
    return attend(*arrays, **options)

  return run


def _with_gradients(function, arrays):
  @jax.jit
  def run(*arrays):
    out, pull = jax.vjp(function, *arrays)
    do = np.random.default_rng(2).standard_normal(out.shape).astype(out.dtype)
    return out, *pull(do)

  return run(*arrays)


@pytest.mark.every(4)
@pytest.mark.parametrize(
  'kernel, packed, data, sequence',
  [
    ('xla', False, 1, 4),
    ('xla', False, 2, 2),
    ('xla', True, 2, 2),
    pytest.param('pallas_tpu', False, 2, 2, marks=pytest.mark.full),
    pytest.param('pallas_tpu', True, 1, 4, marks=pytest.mark.full),
  ],
)
@pytest.mark.parametrize('op', OPS)
def test_equals_one_device_with_gradients(op, kernel, packed, data, sequence):
  arrays = _arrays(packed)
  on_tpu = kernel != 'xla'
  with (
    kernels.target('tpu', interpret=True)
    if on_tpu
    else (contextlib.nullcontext())
  ):
    want = _with_gradients(_function(op, packed, kernel), arrays)
    got = _with_gradients(
      _function(op, packed, kernel, _mesh(data, sequence)), arrays
    )
  for x, y in zip(got, want, strict=True):
    assert relative_rms(x, y) < 1e-5


@pytest.mark.parametrize('op', OPS)
def test_devices_hand_on_states_and_nothing_else(op):
  mesh = _mesh(1, 4)
  length = 4 * 64
  x = jax.ShapeDtypeStruct(
    (BATCH, length, HEADS, WIDTH),
    jnp.float32,
    sharding=jax.NamedSharding(mesh, jax.P(None, 'sequence')),
  )
  attend = kernels.sharded(getattr(kernels, f'{op}_attention'), mesh)

  def both(*arrays):
    out, pull = jax.vjp(lambda *a: attend(*a, **OPTIONS[op]), *arrays)
    return out, pull(out)

  text = jax.jit(both).lower(x, x, x).compile().as_text()
  for unwanted in ('all-gather', 'all-to-all'):
    assert unwanted not in text
  # Each pass has one all-reduce, or 1 + log2(4) permutes.
  steps = text.count(' collective-permute(')
  sums = text.count(' all-reduce(')
  assert (sums, steps) == ((0, 6) if op == 'lightning' else (2, 0))


@pytest.mark.parametrize(
  'option', ['return_state', 'initial_state', 'segment_ids']
)
@pytest.mark.parametrize('op', OPS)
def test_what_only_whole_sequences_have_is_refused(op, option):
  q, k, v = _arrays(False)
  state = jnp.zeros((BATCH, HEADS, WIDTH, WIDTH))
  options = {
    'return_state': {'return_state': True},
    'initial_state': {
      'initial_state': (state, state[..., 0]) if op == 'linear' else state
    },
    'segment_ids': {
      'segment_ids': jnp.zeros((BATCH, LENGTH), jnp.int32),
      'num_segments': 1,
    },
  }[option]
  attend = kernels.sharded(getattr(kernels, f'{op}_attention'), _mesh(2, 2))
  with pytest.raises(NotImplementedError, match=option):
    attend(q, k, v, **options)


@pytest.mark.full
def test_scale_is_that_of_the_whole_sequence():
  q, k, v = _arrays(False)
  attend = kernels.sharded(kernels.simpletron_attention, _mesh(1, 4))
  want = kernels.simpletron_attention(q, k, v, scale=LENGTH**-0.5)
  assert relative_rms(attend(q, k, v), want) < 1e-5


@pytest.mark.every(3)
@pytest.mark.parametrize('fsdp', (1, 2, 4))
def test_keys_of_rows_are_those_of_the_whole_batch(fsdp):
  key = jax.random.key(3)
  axes = 'data', 'fsdp'
  split = jax.P(axes)
  mesh = jax.make_mesh(
    (4 // fsdp, fsdp), axes, axis_types=(AxisType.Auto,) * 2
  )
  draw = jax.jit(
    jax.shard_map(
      lambda x: jax.random.key_data(kernels.row_keys(key, len(x))),
      mesh=mesh,
      in_specs=split,
      out_specs=split,
    )
  )
  want = jax.random.key_data(kernels.row_keys(key, 8))
  np.testing.assert_array_equal(draw(jnp.zeros(8)), want)
  assert len({tuple(k) for k in want.tolist()}) == 8
