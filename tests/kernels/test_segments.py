"""Compares segments packed in a row with one call per segment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from tests.helpers import errors
from tests.helpers.errors import relative_rms

OPS = tuple(errors.FUNCTIONS)
H, D = 2, 16
# Rows of 200 tokens as (segment id, size); id None is padding. Some segments
# have one token or whole chunks, one is empty, and ids may not start at 0.
ROWS = [
  ((0, 70), (1, 64), (2, 1), (None, 20), (4, 45)),
  ((None, 3), (2, 190), (None, 7)),
]
COUNT = 5


def _ids():
  rows = []
  for row in ROWS:
    rows.append(np.concatenate([
      np.full(n, -1 if s is None else s) for s, n in row]))  # fmt: skip
  return np.stack(rows).astype(np.int32)


def _arrays(dtype='float32', state=True):
  rng = np.random.default_rng(0)
  ids = _ids()
  x = rng.standard_normal((4, *ids.shape, H, D))
  x[:, ids < 0] = np.nan  # padding may hold anything
  mask = rng.random(ids.shape) < 0.8
  x[:, ~mask] = np.nan
  q, k, v, do = (jnp.asarray(a, dtype) for a in x)
  states = rng.random((2, len(ids), COUNT, H, D, D)).astype(np.float32)
  return ids, mask, (q, k, v, jnp.nan_to_num(do)), states


def _options(op, state):
  if op == 'lightning':
    return {'slopes': np.float32([0.1, 1.0]), 'initial_state': state}
  if op == 'simpletron':
    return {'scale': 0.3, 'initial_state': state}
  return {'initial_state': (state, state[..., 0])}


def _whole(op, arrays, mask, ids, options, dfinal):
  attend = errors.FUNCTIONS[op]
  static = {k: options[k] for k in options if k != 'initial_state'}

  def call(q, k, v, state):
    return attend(
      q, k, v, mask=mask, segment_ids=ids, num_segments=COUNT,
      initial_state=state, return_state=True, **static,
    )  # fmt: skip

  @jax.jit
  def both(q, k, v, do, state):
    out, pull = jax.vjp(call, q, k, v, state)
    return out, pull((do, jax.tree.map(lambda x, d: d, out[1], dfinal)))

  return both(*arrays, options['initial_state'])


def _one_by_one(op, arrays, mask, ids, options, dfinal):
  """Computes each segment by a call of its own, as a batch of one."""
  attend = errors.FUNCTIONS[op]
  static = {k: options[k] for k in options if k != 'initial_state'}
  state = options['initial_state']
  out, *grads = (np.zeros(arrays[0].shape) for _ in range(4))
  final, dstate = (jax.tree.map(np.array, x) for x in (state, dfinal))
  for b, s in np.ndindex(len(ids), COUNT):
    at = np.flatnonzero(ids[b] == s)
    if not at.size:
      continue
    q, k, v, do = (x[b : b + 1, at] for x in arrays)

    def call(q, k, v, state):
      return attend(
        q, k, v, mask=mask[b : b + 1, at], initial_state=state,
        return_state=True, kernel='xla', **static,
      )  # fmt: skip

    def pick(tree):
      return jax.tree.map(lambda x: jnp.asarray(x[b, s][None]), tree)

    (o, last), pull = jax.vjp(call, q, k, v, pick(state))
    *g, ds = pull((do, pick(dfinal)))
    for whole, part in zip((out, *grads), (o, *g), strict=True):
      whole[b, at] = part[0]
    for whole, part in ((final, last), (dstate, ds)):
      for x, y in zip(*map(jax.tree.leaves, (whole, part)), strict=True):
        x[b, s] = y[0]
  return (out, final), (*grads, dstate)


@pytest.mark.full
@pytest.mark.parametrize('op', OPS)
def test_segments_are_sequences_of_their_own(op):
  ids, mask, arrays, (first, last) = _arrays()
  options, dfinal = _options(op, first), _options(op, last)['initial_state']
  got = _whole(op, arrays, mask, ids, options, dfinal)
  want = _one_by_one(op, arrays, mask, ids, options, dfinal)
  for x, y in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    assert np.isfinite(x).all()
    assert relative_rms(x, y) < 1e-5
  off = (ids < 0) | ~mask
  for x in (got[0][0], *got[1][:3]):
    assert not np.asarray(x)[off].any()


@pytest.mark.full
@pytest.mark.parametrize('op', OPS)
def test_packed_with_its_bias(op):
  """The gradient of `bias` equals the gradient of `qkv` summed over tokens."""
  ids, mask, (q, k, v, do), _ = _arrays()
  qkv = jnp.stack([q, k, v], axis=2)
  function = getattr(kernels, f'{op}_attention_packed')
  more = {'activation': 'silu'} if op == 'lightning' else {}

  def call(qkv, bias):
    return function(
      qkv, bias=bias, mask=mask, segment_ids=ids, num_segments=COUNT, **more
    )

  out, pull = jax.vjp(call, qkv, jnp.ones((3, H, D)))
  dqkv, dbias = pull(do)
  plain = errors.FUNCTIONS[op](
    q, k, v, mask=mask, segment_ids=ids, num_segments=COUNT, **more
  )
  # Not bit for bit: a CPU may fuse multiplications and additions differently.
  assert relative_rms(out, plain) < 1e-6
  assert relative_rms(dbias, np.asarray(dqkv).sum((0, 1))) < 1e-5


def test_products_do_not_grow_with_the_number_of_segments():
  """FLOPs depend on the total length, not on the number of segments."""
  x = jnp.ones((1, 1024, H, D))

  def flops(count):
    ids = jnp.repeat(jnp.arange(count, dtype=jnp.int32), 1024 // count)[None]
    run = jax.jit(lambda q: kernels.lightning_attention(
      q, q, q, segment_ids=ids, num_segments=count))  # fmt: skip
    return run.lower(x).compile().cost_analysis()['flops']

  assert flops(4) < 1.3 * flops(1)
