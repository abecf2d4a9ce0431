"""Compares LayerNorm with its definition in float64 and with Flax's."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from lra import kernels
from lra.models import star_transformer
from lra.nn.norm import EPS, STATS, BatchNorm, LayerNorm, standardise
from tests.helpers import small


def _case(dtype):
  rng = np.random.default_rng(0)
  x = jnp.asarray(2 * rng.normal(size=(3, 7, 16)) + 1, dtype)
  params = {'scale': np.float32(rng.normal(size=16)),
            'bias': np.float32(rng.normal(size=16))}
  return params, x, rng.normal(size=x.shape)


def _gradients(module, params, x, dy):
  y, pull = jax.vjp(
      lambda params, x: module.apply({'params': params}, x), params, x)
  return y, *pull(jnp.asarray(dy, y.dtype))


_compiled = jax.jit(_gradients, static_argnums=0)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('said, eps', [(True, EPS), (False, 0.5)])
def test_it_is_that_of_flax(dtype, said, eps):
  """Results equal Flax's bit for bit; gradients agree up to rounding."""
  params, x, dy = _case(dtype)
  own = dtype if said else None
  modules = [LayerNorm(dtype=own, eps=eps),
             nn.LayerNorm(dtype=own, epsilon=eps, use_fast_variance=False)]
  shapes = [jax.eval_shape(m.init, jax.random.key(0), x) for m in modules]
  assert shapes[0] == shapes[1]
  (y, dparams, dx), (y_flax, *flax) = (
      _compiled(m, params, x, dy) for m in modules)
  assert y.dtype == y_flax.dtype and dx.dtype == x.dtype
  np.testing.assert_array_equal(*(np.float32(v) for v in (y, y_flax)))
  bound = 1e-5 if dtype == jnp.float32 else 2e-2
  for got, want in zip(
      jax.tree.leaves((dparams, dx)), jax.tree.leaves(flax), strict=True):
    small.assert_close(np.float32(got), np.float32(want), bound)


NORMS = {
    'layer': lambda x: LayerNorm().apply(
        {'params': {'scale': jnp.ones(64), 'bias': jnp.zeros(64)}}, x),
    'beside': lambda x: _beside(
        {'scale': jnp.ones(64), 'bias': jnp.zeros(64)}, x, x, x)[0][1],
    'standardise': lambda x: standardise(x, EPS),
    # Its channels are the tokens here, and each has one mean.
    'batch': lambda x: BatchNorm().apply(
        {'params': {'scale': jnp.ones(8), 'bias': jnp.zeros(8)},
         STATS: {'mean': jnp.zeros(8), 'var': jnp.ones(8)}}, x.swapaxes(1, 2),
        jnp.ones((1, 64), bool), train=True, mutable=[STATS])[0].swapaxes(1, 2),
    'star_transformer': lambda x: _star(x)}


class _Star(star_transformer.Mixer):

  @nn.compact
  def __call__(self, x):
    return self._update(x.reshape(1, 8, 2, 32), x, 'ring')


def _star(x):
  return _Star(num_heads=2, qkv_width=64).apply({'params': {
      'ring_out': {'kernel': jnp.eye(64).reshape(2, 32, 64),
                   'bias': jnp.zeros(64)},
      'ring_norm': {'scale': jnp.ones(64), 'bias': jnp.zeros(64)}}}, x)


@pytest.mark.parametrize('mean', [2e3, 1e4])
@pytest.mark.parametrize('name', NORMS)
def test_tokens_with_a_large_mean_keep_their_variance(name, mean):
  """The difference of two large moments would lose it."""
  x = (mean + np.random.default_rng(0).normal(size=(1, 8, 64))).astype('f')
  exact = x.astype(np.float64)
  unit = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(
      exact.var(-1, keepdims=True))
  if name == 'beside':  # its eps is 0.5
    unit *= np.sqrt(exact.var(-1, keepdims=True) / (
        exact.var(-1, keepdims=True) + 0.5))
  small.assert_close(NORMS[name](jnp.asarray(x)), unit, 1e-3)


@functools.partial(jax.jit, static_argnums=(4, 5))
def _beside(params, x, dy, dx, dtype=None, interpret=True):
  """Returns x and its norm on a GPU with eps = 0.5, and their gradients."""
  with kernels.target('gpu', interpret):
    out, pull = jax.vjp(lambda params, x: LayerNorm(dtype, 0.5).apply(
        {'params': params}, x, beside=True), params, x)
    return out, *pull((dx, dy))


def _tokens(shape, dtype, seed=0):
  rng = np.random.default_rng(seed)
  x, dy, dx = (jnp.asarray(rng.normal(size=shape) * size + size - 1, dtype)
               for size in (2, 1, 1))
  params = {name: np.float32(rng.normal(size=shape[-1]))
            for name in ('bias', 'scale')}
  return params, x, dy, dx


@pytest.mark.every(3)
# Partly filled blocks of tokens and columns; several programs.
@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('shape', [
    (2, 37, 64), (3, 77, 96), (1, 5, 512), (2, 600, 16), (1, 9, 1000)], ids=str)
def test_beside_a_sum_on_a_gpu(shape, dtype):
  """Compares results and gradients with each token's float64 Jacobian."""
  params, x, dy, dx = _tokens(shape, dtype)
  (same, y), dparams, found = _beside(params, x, dy, dx, dtype)
  np.testing.assert_array_equal(same, x)
  assert y.dtype == dtype and found.dtype == dtype
  x, dy, dx, scale, bias = (
      np.float64(a) for a in (x, dy, dx, params['scale'], params['bias']))
  deviation = np.sqrt(x.var(-1, keepdims=True) + 0.5)
  unit = (x - x.mean(-1, keepdims=True)) / deviation
  width = shape[-1]
  jacobian = (np.eye(width) - 1 / width
              - unit[..., :, None] * unit[..., None, :] / width)
  jacobian /= deviation[..., None]
  want = dx + np.einsum('...i,...ij->...j', dy * scale, jacobian)
  bound = 1e-5 if dtype == jnp.float32 else 1e-2
  small.assert_close(np.float32(y), unit * scale + bias, bound)
  small.assert_close(np.float32(found), want, bound)
  small.assert_close(dparams['scale'], (dy * unit).sum((0, 1)), bound)
  small.assert_close(dparams['bias'], dy.sum((0, 1)), bound)


def test_beside_a_sum_where_there_is_no_kernel():
  """A CPU, and a GPU with too many columns, use the plain norm."""
  for platform, width in (('cpu', 16), ('gpu', 2056)):
    params, x, dy, dx = _tokens((1, 3, width), jnp.float32)
    with kernels.target(platform):
      (same, y), pull = jax.vjp(lambda params, x: LayerNorm().apply(
          {'params': params}, x, beside=True), params, x)
      dparams, found = pull((dx, dy))
    plain, *want = _gradients(LayerNorm(), params, x, dy)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(y, plain)
    small.assert_close((dparams, found), (want[0], want[1] + dx))


def _mesh():
  return jax.make_mesh((2,), ('data',), (jax.sharding.AxisType.Auto,),
                       devices=jax.devices()[:2])


def test_beside_a_sum_over_a_mesh():
  """On a mesh, gradients of parameters are summed over all devices."""
  params, x, dy, dx = _tokens((4, 21, 48), jnp.float32)
  with jax.set_mesh(_mesh()):
    got = jax.jit(_beside)(params, x, dy, dx)
  small.assert_close(got, _beside(params, x, dy, dx))


def test_beside_a_sum_in_a_shard_map_that_checks_what_varies():
  """Traces only: tracing does the check, and the interpreter cannot run it."""
  params, x, dy, dx = _tokens((4, 21, 48), jnp.float32)
  split, whole = PartitionSpec('data'), PartitionSpec()
  run = jax.shard_map(
      lambda *args: _beside(*args, interpret=None), mesh=_mesh(),
      in_specs=(whole, *[split] * 3), out_specs=(split, whole, split))
  assert 'layer_norm_gradients' in str(jax.make_jaxpr(run)(params, x, dy, dx))
