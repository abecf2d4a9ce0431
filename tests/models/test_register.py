"""Tests mixers that are registered in a process, without a file."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from lra import models
from lra.configs import base
from lra.core.errors import UserError
from lra.run import provenance
from lra.run.experiment import resolve
from tests.helpers import mixer_oracle

DOUBLED = 'doubled_of_a_test'


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
  monkeypatch.setattr(models, '_registered', {})


def _doubling(by):
  @models.register(DOUBLED)
  class Doubled(nn.Module):
    scale: float = by
    dtype: jnp.dtype = jnp.float32

    def __call__(self, x, mask, *, train):
      return self.scale * x

  return Doubled


def test_a_registered_mixer_is_what_a_config_of_its_name_runs():
  _doubling(2.0)
  later = _doubling(3.0)
  config = base.get_config('listops_mini', DOUBLED)
  assert config.model.to_dict() == {'name': DOUBLED, 'scale': 3.0}
  config.model.scale = 4.0
  made = resolve(config)
  mixer = made.encoder.mixer()
  assert type(mixer) is later and mixer.scale == 4.0
  x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
  y = mixer_oracle.apply(mixer, {}, x, np.ones((2, 5), bool))
  np.testing.assert_array_equal(y, 4 * x)
  # No file fixes its code.
  origin = provenance.of_files(made)
  assert origin['model_sha256'] is None
  assert origin['git_dirty'] in (True, None)
  assert models.mixer('transformer').__module__ == 'lra.models.transformer'
  assert DOUBLED not in models.names()


def test_what_cannot_be_registered_is_named():
  with pytest.raises(UserError, match='simpletron.py .*simpletron_res'):
    models.register('simpletron_res')
  with pytest.raises(UserError, match='is no mixer'):
    models.register('mine')(lambda x: x)
