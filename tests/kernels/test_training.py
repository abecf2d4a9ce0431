"""Compares training losses of Pallas kernels with those of plain XLA."""

import contextlib

import jax
import numpy as np
import pytest

from lra import kernels
from tests.helpers import small

pytestmark = pytest.mark.full

MODELS = ('linear_transformer', 'simpletron', 'lightning')


def _losses(model, kernel, devices=1, steps=3):
  c = small.config(model, 'listops', microbatch_size=4)
  c.model.kernel = kernel
  # The plain interpreter stands for a TPU.
  place = contextlib.nullcontext()
  if kernel == 'pallas_tpu':
    place = kernels.target('tpu', interpret=True)
  with place:
    p = small.make(c, devices)
    state, train, losses = p.init(), p.compile_train(), []
    for seed in range(steps):
      batch = small.batch(p.objective.task, 4, 24, seed, lead=(1,))
      state, _ = train(state, batch, p.put_given())
      losses.append(float(jax.device_get(state.sums['loss'])))
      state = p.reset_sums(state)
  return losses


@pytest.mark.parametrize('model', MODELS)
def test_losses_with_the_tpu_kernels_are_those_of_xla(model):
  xla, pallas = (_losses(model, kernel) for kernel in ('xla', 'pallas_tpu'))
  np.testing.assert_allclose(pallas, xla, rtol=1e-4)
  assert len(set(xla)) > 1


def test_over_four_devices():
  one = _losses('linear_transformer', 'xla')
  four = _losses('linear_transformer', 'pallas_tpu', devices=4)
  np.testing.assert_allclose(four, one, rtol=1e-4)
