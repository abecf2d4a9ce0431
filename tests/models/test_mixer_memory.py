"""Compiled memory of forward and backward: linear in L, never [L, L]."""

import functools
import importlib

import jax
import jax.numpy as jnp
import pytest

WIDTH = 128
# One of each way through the shared code.
MIXERS = {
    'transformer': {'kernel': 'chunked'}, 'efficient': {}, 'synthesizer': {},
    'linformer': {}, 'performer': {'redraw': True}, 'gmm_rks': {},
    'generative_prf': {}, 'fastfood_prf': {'num_features': 32}}


def compiled(name, length, **options):
  """One jitted forward and backward at B 1, width 128, in float32."""
  mixer = importlib.import_module(f'lra.models.{name}').Mixer(**options)
  x = jax.ShapeDtypeStruct((1, length, WIDTH), jnp.float32)
  mask = jax.ShapeDtypeStruct((1, length), bool)
  variables = jax.eval_shape(functools.partial(mixer.init, train=False),
                             jax.random.key(0), x, mask)

  def loss(params, rest, x, mask):
    y = mixer.apply({**rest, 'params': params}, x, mask, train=True,
                    rngs={'dropout': jax.random.key(0)})
    return jnp.sum(jnp.square(y))

  params = variables['params']
  rest = {k: v for k, v in variables.items() if k != 'params'}
  return jax.jit(jax.grad(loss, (0, 2))).lower(
      params, rest, x, mask).compile()


def temporary_bytes(program):
  return program.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize('name', MIXERS)
def test_doubling_the_length_at_most_doubles_the_memory(name):
  options = dict(MIXERS[name])
  if name != 'efficient':
    options.update(num_heads=4, qkv_width=WIDTH)
  half, whole = (compiled(name, n, **options) for n in (4096, 8192))
  assert temporary_bytes(whole) <= 2.3 * temporary_bytes(half)
  assert '4096,4096' not in half.as_text()


def test_the_measure_sees_quadratic_memory():
  options = {'num_heads': 4, 'qkv_width': WIDTH, 'kernel': 'dense'}
  half, whole = (
      compiled('transformer', n, **options) for n in (1024, 2048))
  assert temporary_bytes(whole) > 3 * temporary_bytes(half)
  assert '1024,1024' in half.as_text()
