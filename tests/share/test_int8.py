"""Compares int8 models with dense layers rounded in float64."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.board import catalogue
from lra.core.errors import UserError
from lra.share import int8
from tests.helpers import int8_oracle, small


@pytest.mark.parametrize('ins, outs', [((8,), (2, 4)), ((2, 4), (8,))])
def test_a_layer_equals_its_float64_sum_of_int8_products(ins, outs):
  rng = np.random.default_rng(3)
  # Tokens and channels differ in size, so that each needs its own scale.
  x = rng.standard_normal((3, 5, *ins)) * np.geomspace(
      1e-3, 1e3, 15).reshape(3, 5, *[1] * len(ins))
  kernel = rng.standard_normal((*ins, *outs)) * np.geomspace(
      1e-2, 1e2, np.prod(outs)).reshape(outs)
  x[0, 0] = 0
  bias = rng.standard_normal(outs)
  x, kernel, bias = map(jnp.float32, (x, kernel, bias))
  axes = range(len(ins), kernel.ndim)
  got = int8.matmul(
      x, int8.quantise(kernel, axes), bias, len(ins), None)
  np.testing.assert_allclose(
      got, int8_oracle.product(x, kernel, bias, len(ins)), rtol=1e-5,
      atol=1e-5)


def _made(model):
  made = small.make(small.config(model, 'listops_mini'))
  state = made.init()
  tokens = small.batch(made.objective.task, 4, made.objective.seq_len)['tokens']
  return made, state, tokens


def _logits(model, params, state, tokens):
  return np.asarray(jax.jit(lambda params: model.apply(
      {'params': params, **state.constants}, tokens, train=False))(params))


def test_a_model_equals_one_with_layers_rounded_in_float64():
  made, state, tokens = _made('transformer')
  other, params = int8.program(made, state.params, state.constants)
  got = _logits(other.model, params, state, tokens)
  want = int8_oracle.logits(
      made.model, {'params': state.params, **state.constants}, tokens)
  exact = _logits(made.model, state.params, state, tokens)
  error = np.linalg.norm(exact - want)  # that of int8
  assert 0 < np.linalg.norm(got - want) < 0.1 * error < 0.01 * np.linalg.norm(
      exact)


def test_kernels_take_a_byte_an_entry_and_four_a_channel():
  made, state, _ = _made('transformer')
  other, params = int8.program(made, state.params, state.constants)
  width, classes, mlp = 16, 10, 16
  kernels = [(width, width)] * 4 + [(width, mlp), (mlp, width), (width, mlp),
                                    (mlp, classes)]
  saved = sum(3 * ins * outs - 4 * outs for ins, outs in kernels)
  assert int8.num_bytes(params) == int8.num_bytes(state.params) - saved
  assert other.model.model is made.model


def _error(model):
  """Returns the int8 parameters, and the relative error of int8 logits."""
  made, state, tokens = _made(model)
  other, params = int8.program(made, state.params, state.constants)
  exact = _logits(made.model, state.params, state, tokens)
  got = _logits(other.model, params, state, tokens)
  return params, np.linalg.norm(got - exact) / np.linalg.norm(exact)


@pytest.mark.full
@pytest.mark.parametrize('model', sorted(e.name for e in catalogue.read()))
def test_every_model_has_an_int8_version_that_is_close(model):
  assert 0 < _error(model)[1] < 0.1


def test_weights_that_a_layer_takes_apart_are_rounded():
  params, error = _error('mla')
  up = params['encoder']['block_0']['mixer']['key_up']['kernel']
  assert up.qvalue.dtype == jnp.int8 and 0 < error < 0.1


def test_a_missing_library_is_named(monkeypatch):
  made, state, _ = _made('fnet')
  monkeypatch.setitem(sys.modules, 'qwix', None)
  with pytest.raises(UserError, match='int8'):
    int8.program(made, state.params, state.constants)
