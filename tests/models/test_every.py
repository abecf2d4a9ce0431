"""Tests every model with several lengths, batches and dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import models
from lra.core.errors import UserError
from tests.helpers import mixer_oracle, small
from tools import tables

NAMES = models.names()
SHORT, LENGTHS = 7, (1, 2, 3, 13, 31)


def _gradient(name, dtype, train, *lengths):
  """Returns the mask, and a function of the indices of examples.

  The function returns the output and its gradients by parameters and x.
  """
  x, mask = mixer_oracle.ragged(*lengths, width=16)
  x = x.astype(dtype)
  mixer = tables.mixer(name, width=16, heads=2).clone(dtype=dtype)
  variables = dict(mixer_oracle.init(mixer, x, mask))
  params = variables.pop('params')

  def loss(params, x, mask, cotangent):
    y = mixer.apply({'params': params, **variables}, x, mask, train=train,
                    rngs={'dropout': jax.random.key(0)} if train else {})
    return jnp.sum(y.astype(jnp.float32) * cotangent), y

  run = mixer_oracle.quick_jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
  cotangent = np.random.default_rng(1).normal(size=x.shape)
  cotangent = (cotangent * mask[..., None]).astype(np.float32)

  def of(*rows):
    rows = list(rows)
    (_, y), grads = run(params, x[rows], mask[rows], cotangent[rows])
    return jax.device_get((y, *grads))

  return mask, of


def _assert_finite(tree):
  for path, a in jax.tree_util.tree_leaves_with_path(tree):
    assert np.isfinite(a.astype(np.float32)).all(), path


@pytest.mark.every(40, 16)
@pytest.mark.parametrize('name, length', [
    *((name, SHORT) for name in NAMES),
    *(mixer_oracle.full(name, length)
      for length in LENGTHS for name in NAMES)])
def test_an_example_is_alone_in_its_batch(name, length):
  """An example has the same output alone and in a batch.

  The content of padding and of an empty sequence has no influence.
  """
  mask, of = _gradient(name, 'float32', False, length, -(-length // 2), 0)
  y, of_params, of_x = together = of(0, 1, 2)
  _assert_finite(together)
  np.testing.assert_array_equal(of_x[~mask], 0)
  copies = 1 if length == SHORT else 3  # this size is already compiled
  alone = [of(*[i] * copies) for i in (0, 1)]
  for i, (own, _, of_own) in enumerate(alone):
    small.assert_close(y[i][mask[i]], own[0][mask[i]])
    small.assert_close(of_x[i], of_own[0])
  small.assert_close(of_params, jax.tree.map(
      lambda a, b: (a + b) / copies, *(of_own for _, of_own, _ in alone)))


@pytest.mark.every(49, 7)
@pytest.mark.parametrize('name, dtype', [
    *((name, 'bfloat16') for name in NAMES),
    *(mixer_oracle.full(name, 'float16') for name in NAMES)])
def test_a_training_step_of_16_bits_is_finite(name, dtype):
  """Output and gradients are finite, although one of three sequences is empty.

  A model may refuse float16.
  """
  try:
    mask, of = _gradient(name, dtype, True, 13, 7, 0)
  except UserError:
    assert dtype == 'float16'  # which config.dtype does not offer
    return
  y, of_params, of_x = of(0, 1, 2)
  assert y.dtype == dtype
  _assert_finite((y, of_params, of_x))
