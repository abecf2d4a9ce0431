"""Tests operations inside `jax.shard_map` with its check of varying values.

There are two devices. The gradient of a replicated argument is the sum over
both.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from lra import kernels
from tests.helpers.errors import relative_rms

SPLIT, WHOLE = PartitionSpec('data'), PartitionSpec()
B, L, H, D = 4, 20, 2, 8
QKV = [((B, L, H, D), SPLIT)] * 3
PACKED = [((B, L, 3, H, D), SPLIT), ((3, H, D), WHOLE)]
STATE = (B // 2, H, D, D)


def _keywords(op, *names, **options):
  """Returns `op` as a function of arrays; the last go to keywords `names`."""
  function = getattr(kernels, op)
  count = 1 if 'packed' in op or op == 'norm_project' else 3

  def call(*arrays):
    others = dict(zip(names, arrays[count:], strict=True))
    return function(*arrays[:count], **others, **options)

  return call


def _with_a_state(q, k, v, sums, normalizer):
  state = sums, jnp.abs(normalizer) + 1
  return kernels.linear_attention(q, k, v, initial_state=state)


def _in_segments(op, q, k, v):
  ids = jnp.asarray(np.repeat([[0, 1]], L // 2, axis=1))
  ids = jnp.broadcast_to(ids, q.shape[:2]).astype(jnp.int32)
  return getattr(kernels, op)(q, k, v, segment_ids=ids, num_segments=2)


def _masked(kernel, q, k, v):
  mask = jnp.broadcast_to(jnp.arange(L) < 13, k.shape[:2])
  return kernels.softmax_attention(q, k, v, mask=mask, kernel=kernel)


# name: (function, [(shape, PartitionSpec) of each argument])
CASES = {
  'linear': (_keywords('linear_attention'), QKV),
  'linear, state': (
    _with_a_state, [*QKV, (STATE, WHOLE), (STATE[:-1], WHOLE)]
  ),
  'linear, packed': (_keywords('linear_attention_packed', 'bias'), PACKED),
  'simpletron': (_keywords('simpletron_attention'), QKV),
  'simpletron, packed': (
    _keywords('simpletron_attention_packed', 'bias'), PACKED
  ),
  'lightning': (_keywords('lightning_attention'), QKV),
  'lightning, state': (
    _keywords('lightning_attention', 'initial_state'), [*QKV, (STATE, WHOLE)]
  ),
  'lightning, packed': (
    _keywords('lightning_attention_packed', 'bias'), PACKED
  ),
  'norm_project': (
    _keywords('norm_project', 'weight', 'bias'),
    [((B, L, D), SPLIT), ((D, 6), WHOLE), ((6,), WHOLE)],
  ),
}  # fmt: skip
for _op in ('linear', 'simpletron', 'lightning'):
  CASES[f'{_op}, segments'] = (
    functools.partial(_in_segments, f'{_op}_attention'), QKV
  )  # fmt: skip
_half = ((B // 2, L, H, D), WHOLE)
for _name in ('chunked', 'dense'):
  _attend = functools.partial(_keywords, 'softmax_attention', kernel=_name)
  CASES |= {
    _name: (_attend(), QKV),
    f'{_name}, mask': (functools.partial(_masked, _name), QKV),
    f'{_name}, bias': (
      _attend('bias'), [*QKV, ((H, 2 * L - 1), WHOLE)]
    ),
    f'{_name}, whole keys': (_attend(), [QKV[0], _half, _half]),
    f'{_name}, whole queries': (_attend(), [_half, *QKV[1:]]),
  }  # fmt: skip


def _with_gradients(function):
  def both(*args):
    out, pull = jax.vjp(function, *args)
    return out, pull(jnp.cos(out))

  return both


@pytest.mark.every(4)
@pytest.mark.parametrize('name', CASES)
def test_gradients_of_what_is_whole_are_summed(name):
  function, arguments = CASES[name]
  rng = np.random.default_rng(0)
  specs = tuple(spec for _, spec in arguments)
  args = [
    jnp.asarray(rng.standard_normal(shape, np.float32))
    for shape, _ in arguments
  ]
  both = _with_gradients(function)
  mesh = jax.make_mesh(
    (2,), ('data',), axis_types=(AxisType.Auto,), devices=jax.devices()[:2]
  )
  out, got = jax.jit(
    jax.shard_map(both, mesh=mesh, in_specs=specs, out_specs=(SPLIT, specs))
  )(*args)
  halves = [
    jax.jit(both)(
      *(
        jnp.split(x, 2)[i] if spec == SPLIT else x
        for x, spec in zip(args, specs, strict=True)
      )
    )
    for i in range(2)
  ]
  outs, grads = zip(*halves, strict=True)
  assert relative_rms(out, jnp.concatenate(outs)) < 1e-6
  for x, spec, *parts in zip(got, specs, *grads, strict=True):
    want = jnp.concatenate(parts) if spec == SPLIT else sum(parts)
    assert relative_rms(x, want) < 1e-6
