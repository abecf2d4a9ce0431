"""Gradients of functions, data races of kernels, arrays of absent devices."""

import functools

import jax
import jax.numpy as jnp
import pytest


def with_gradients(function):
  """Returns a function (dy, *arrays) -> (output, *gradients)."""
  @jax.jit
  def both(do, *args):
    out, pull = jax.vjp(function, *args)
    return out, *pull(do)

  return both


def with_cosines(function):
  """Returns a function *arrays -> (output, gradients for dy = cos(output))."""
  @jax.jit
  def both(*args):
    out, pull = jax.vjp(function, *args)
    return out, pull(jax.tree.map(jnp.cos, out))

  return both


def descriptions(target):
  """Returns `jax.ShapeDtypeStruct` for arrays on a target of `aot`.

  Skips the test without the target's compiler.
  """
  from tests.helpers import aot

  try:
    place = jax.sharding.SingleDeviceSharding(aot.device(target))
  except aot.Unavailable as reason:
    pytest.skip(str(reason))
  return functools.partial(jax.ShapeDtypeStruct, sharding=place)


def no_races():
  """Asserts that the simulated TPU kernels had no data race."""
  from jax._src.pallas.mosaic.interpret import interpret_pallas_call as state

  assert not state.races.races_found


def hopper_simulator(**options):
  """Returns parameters of the GPU interpreter; skips the test without one."""
  from jax.experimental.pallas import mosaic_gpu as plgpu

  from lra import kernels
  from lra.kernels import hopper_call
  try:
    with kernels.target('gpu', 'any'):
      hopper_call.supported((1, 1, 1, 64), jnp.bfloat16)
  except NotImplementedError as reason:
    pytest.skip(str(reason))
  return plgpu.InterpretGPUParams(**options)
