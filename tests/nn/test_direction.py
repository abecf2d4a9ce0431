"""Tests models whose layers alternate between the two directions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import models
from lra.core.errors import UserError
from lra.nn.encoder import Block
from lra.run.experiment import make_mixer
from lra.schema import fields
from tests.helpers import small

ALTERNATING = [
    name for name in models.names()
    if 'alternating' in models.mixer(name).__dataclass_fields__.get(
        'direction', fields.dataclasses.field()).metadata.get('choices', ())]
LENGTH, WIDTH = 12, 8


@functools.cache
def _run(model, direction, layer, conv_width=0):
  """Returns two compiled functions of x and mask for one block of a model.

  The first returns the output, the second its Jacobian by the input.
  """
  c = small.config(model, 'listops')
  c.model.direction = direction
  block = Block(
      mixer=make_mixer(c.model), layer=layer, num_layers=2, full_length=LENGTH,
      conv_width=conv_width, mlp_width=WIDTH, dropout=0.0, dtype=jnp.float32,
      norm='none', block='none')
  x, mask = _inputs()
  variables = jax.eval_shape(
      lambda: block.init(jax.random.key(0), x, mask, False, mask))
  rng = np.random.default_rng(0)
  variables = jax.tree.map(
      lambda v: 0.3 * rng.standard_normal(v.shape, np.float32), variables)
  apply = lambda x, mask: block.apply(variables, x, mask, False, mask)[0]
  # Derivatives of each token's weighted channel sum by the input of all tokens.
  weight = np.float32(rng.standard_normal(WIDTH))
  seen = lambda x, mask: jax.jacobian(
      lambda x: (apply(x, mask) * weight).sum((0, 2)))(x)
  return jax.jit(apply), jax.jit(seen)


def _inputs():
  x = np.random.default_rng(1).standard_normal((2, LENGTH, WIDTH), np.float32)
  mask = np.ones((2, LENGTH), bool)
  mask[0, 9:] = mask[1, 3:5] = False
  return x, mask


@pytest.mark.every(23, 9)
@pytest.mark.parametrize('conv_width', [0, 3])
@pytest.mark.parametrize('model', ALTERNATING)
def test_the_second_layer_is_a_causal_one_of_reversed_tokens(model, conv_width):
  x, mask = _inputs()
  got = [_run(model, 'alternating', layer, conv_width)[0](x, mask)
         for layer in (0, 1)]
  causal = _run(model, 'causal', 1, conv_width)[0]
  want = causal(x[:, ::-1], mask[:, ::-1])[:, ::-1]
  small.assert_close(got[1][mask], want[mask])
  want = _run(model, 'causal', 0, conv_width)[0](x, mask)
  small.assert_close(got[0][mask], want[mask])
  assert np.abs(got[0] - got[1]).max() > 1e-3


@pytest.mark.every(99, 4)
@pytest.mark.parametrize('model', ALTERNATING)
def test_layers_see_one_side_each(model):
  x, _ = _inputs()
  mask = np.ones(x.shape[:2], bool)
  for layer, side in ((0, np.tril), (1, np.triu)):
    seen = np.abs(_run(model, 'alternating', layer)[1](x, mask)).max((1, 3))
    assert np.abs(seen - side(seen)).max() < 1e-6 * seen.max()  # an FFT rounds
    assert np.diag(seen, 1 if layer else -1).min() > 1e-5 * seen.max()


def test_the_first_token_of_two_layers_sees_all():
  c = small.config('s5', 'listops')
  c.model.direction = 'alternating'
  with pytest.raises(UserError, match='alternating .* one layer'):
    small.make(c)
  c.encoder.num_layers = 2
  for pooling in ('cls', 'first', 'last', 'mean'):
    c.encoder.pooling = pooling
    small.make(c)
  c.model.direction = 'causal'
  c.encoder.pooling = 'first'
  with pytest.raises(UserError, match='pooling=first'):
    small.make(c)
