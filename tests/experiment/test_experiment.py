"""What a new mixer's file gets wrong is one sentence."""

import types

import flax.linen as nn
import jax.numpy as jnp
import ml_collections
import pytest

from lra.costs import parameters
from lra.errors import UserError
from lra.experiment import build
from lra.report import catalogue


class _Plain(nn.Module):
  """A mixer that does not ask for its place."""
  slope: float = 1.0
  dtype: jnp.dtype = jnp.float32


class _WithoutDtype(nn.Module):
  slope: float = 1.0


def _make(mixer, **arguments):
  model = ml_collections.ConfigDict({'name': 'foo', **arguments})
  return build.make_mixer(types.SimpleNamespace(Mixer=mixer), model)


def test_a_mixer_gets_what_it_has_fields_for():
  made = _make(_Plain, slope=2.0)(
      dtype=jnp.bfloat16, layer=3, num_layers=4, name='mixer')
  assert (made.slope, made.dtype, made.name) == (2.0, jnp.bfloat16, 'mixer')


def test_a_forgotten_dtype_is_one_sentence():
  with pytest.raises(UserError, match=r'lra/models/foo\.py has no dtype: add'):
    _make(_WithoutDtype)


def test_an_argument_that_the_mixer_does_not_have():
  with pytest.raises(UserError, match=r'config\.model\.slop .*foo.*slope'):
    _make(_Plain, slop=2.0)
  with pytest.raises(UserError, match=r'config\.model\.layer means nothing'):
    _make(_Plain, layer=1)


def test_a_model_that_cannot_be_built_harms_no_other(monkeypatch):
  entries = [e for e in catalogue.read() if e.name in ('local', 'transformer')]
  monkeypatch.setattr(parameters.catalogue, 'read', lambda: entries)
  monkeypatch.setattr(parameters, 'read', dict)
  whole = parameters.parameters

  def fail_for_local(model, task):
    if model == 'local':
      raise NameError('no such\nname')
    return whole(model, task)

  monkeypatch.setattr(parameters, 'parameters', fail_for_local)
  found, problems = parameters.table()
  assert list(found) == ['transformer']
  assert problems == ['local cannot be built: no such name']
