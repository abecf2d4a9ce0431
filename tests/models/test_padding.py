"""Tests that the amount of padding changes no output, except in some models."""

import jax
import jax.numpy as jnp
import pytest

from lra import models
from lra.board import catalogue
from lra.models import synthesizer
from tests.helpers import mixer_oracle, small
from tools import tables

# Models with parameters, patterns, angles or a scale for one padded length. Of
# `long_conv` and `mega` a shorter sequence reads a part of a table.
PER_LENGTH = {'long_conv', 'mega', *(
    entry.name for entry in catalogue.read() if entry.mixes_padding)}
CASES = [
    *((name, {}) for name in models.names()),
    *(('synthesizer', {'variant': variant})
      for variant in synthesizer.VARIANTS[1:]),
    ('bigbird', {'block_size': 16}), ('sinkhorn', {'block_size': 16}),
    ('longformer', {'window': 10, 'dilation': 2})]


@pytest.mark.every(49, 7)
@pytest.mark.parametrize('name, options', CASES)
def test_longer_padding_changes_nothing(name, options):
  """Outputs and gradients stay the same; some models need `full_length`."""
  x, mask = mixer_oracle.ragged(150, 97, 1, width=16, length=367)
  mixer = tables.mixer(name, width=16, heads=2).clone(**options)
  if name in PER_LENGTH:
    mixer = mixer.clone(full_length=367)
  variables = dict(mixer_oracle.init(mixer, x, mask))
  params = variables.pop('params')

  def loss(params, x, mask):
    y = mixer.apply({'params': params, **variables}, x, mask, train=False)
    y = jnp.where(mask[..., None], y, 0)
    return jnp.sum(jnp.sin(y)), y[:, :150]

  run = mixer_oracle.quick_jit(jax.grad(loss, has_aux=True))
  small.assert_close(
      run(params, x[:, :150], mask[:, :150]), run(params, x, mask))
