"""Compares packed and separate q, k, v projections in linear mixers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.kernels import call
from lra.models import lightning, linear_transformer, simpletron
from lra.nn import layers
from tests.helpers import errors
from tests.helpers.errors import relative_rms

X = jax.random.normal(jax.random.key(0), (2, 40, 128))
MASK = jnp.arange(40) < jnp.array([[40], [25]])
MIXERS = {
    'simpletron': simpletron.Mixer(num_heads=2, qkv_width=128),
    'simpletron_resl': simpletron.ResL(num_heads=2, qkv_width=128),
    'without biases': simpletron.Mixer(
        num_heads=2, qkv_width=128, qkv_bias=False),
    'linear_transformer': linear_transformer.Mixer(
        num_heads=2, qkv_width=128),
    'lightning': lightning.Mixer(num_heads=2, qkv_width=128),
    'bidirectional': lightning.Mixer(
        num_heads=2, qkv_width=128, direction='bidirectional', gate=True),
}


def _init(mixer):
  """Returns the parameters that a mixer starts from."""
  return jax.jit(functools.partial(mixer.init, train=False))(
      jax.random.key(1), X, MASK)


def _run(mixer, params):
  """Returns the output, and gradients of parameters and input."""

  def loss(params, x):
    y = mixer.apply(params, x, MASK, train=True)
    # Squares, not sines: a sine of large outputs would magnify rounding.
    return jnp.sum(y**2 * MASK[..., None]), y

  run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
  (_, y), gradients = run(params, X)
  return y, gradients


def _close(got, want):
  for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    assert relative_rms(np.asarray(x), np.asarray(y)) < 1e-5


def test_on_a_gpu_lightning_norms_inside_the_projection(monkeypatch):
  mixer, seen = MIXERS['lightning'], []
  run = call.run

  def record(op, kernel, *args):
    if op == 'norm_project':
      seen.append(kernel)
    return run(op, kernel, *args)

  monkeypatch.setattr(call, 'run', record)
  with errors.simulated('pallas_triton'):
    params = jax.eval_shape(lambda: _init(mixer))
    assert set(seen) == {'pallas_triton'}
    for kernel, want in (('auto', {'pallas_triton'}), ('xla', set())):
      del seen[:]
      jax.eval_shape(lambda params, kernel=kernel: _run(
          mixer.clone(kernel=kernel), params), params)
      assert set(seen) == want


@pytest.mark.full
@pytest.mark.parametrize('name, kernel', [
    *((name, 'pallas_tpu') for name in MIXERS), ('lightning', 'pallas_triton')])
def test_the_packed_way_is_the_plain_way(name, kernel, monkeypatch):
  """Packed and separate projections give equal results and gradients."""
  mixer = MIXERS[name]
  params = jax.tree.map(lambda p: p + 0.1, _init(mixer))
  want = _run(mixer.clone(kernel='xla'), params)
  seen = []
  project = layers.project_packed
  monkeypatch.setattr(
      layers, 'project_packed',
      lambda *args: seen.append(args) or project(*args))
  with errors.simulated(kernel):
    got = _run(mixer, params)
  assert seen
  _close(got, want)


@pytest.mark.full
@pytest.mark.parametrize('name, platform', [
    ('linear_transformer', 'tpu'), ('lightning', 'tpu'), ('lightning', 'gpu')])
def test_a_mesh_changes_nothing(name, platform):
  """Biases and norms get the gradient of the whole batch."""
  mixer = MIXERS[name]
  params = _init(mixer)
  mesh = jax.make_mesh((2,), ('data',),
                       axis_types=(jax.sharding.AxisType.Auto,))
  with kernels.target(platform, interpret=True):
    want = _run(mixer, params)
    with jax.set_mesh(mesh):
      got = _run(mixer, params)
  _close(got, want)


@pytest.mark.parametrize('skip', [False, True])
def test_a_projection_may_follow_simpletron(skip):
  """Simple W + b, and (Simple + X) W + b with the inner skip, in float64."""
  plain = MIXERS['simpletron']
  projected = MIXERS['simpletron_resl'] if skip else plain.clone(
      output_projection=True)
  params = _init(projected)
  layers_of = params['params']
  (name,) = {*layers_of} - {*_init(plain)['params']}
  y = plain.apply(
      {'params': {k: v for k, v in layers_of.items() if k != name}}, X, MASK,
      train=False)
  kernel = np.asarray(layers_of[name]['kernel'], np.float64).reshape(128, 128)
  want = (np.asarray(y, np.float64) + skip * np.asarray(X, np.float64)
          ) @ kernel + layers_of[name]['bias']
  got = projected.apply(params, X, MASK, train=False)
  assert relative_rms(np.asarray(got), want) < 1e-5
