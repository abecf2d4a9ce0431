"""Compares additive attention with Keras, which runs on PyTorch here."""

import pytest

from lra.models.additive import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


@pytest.fixture
def keras(monkeypatch, tmp_path):
  monkeypatch.setenv('KERAS_BACKEND', 'torch')
  monkeypatch.setenv('KERAS_HOME', str(tmp_path))  # for Keras's settings
  keras = peer.load('keras', 'keras')
  if keras.backend.backend() != 'torch':
    pytest.skip('Keras was imported before with another backend')
  return keras


def test_additive(check, keras):
  """Applies Keras's layer, which has one head, to each head in turn."""
  layer = keras.layers.AdditiveAttention()
  layer.build([(2, 70, 8)] * 3)

  def theirs(params, x, mask):
    q, k, v = (peer.heads(x, params[name]).unbind(1)
               for name in ('query', 'key', 'value'))
    out = [layer.stateless_call([weight], [], [*inputs], mask=[None, mask])[0]
           for *inputs, weight in zip(q, v, k, params['score'], strict=True)]
    return peer.merge(torch.stack(out, 1), params['out'])

  check('keras', Mixer(num_heads=2, qkv_width=16), theirs,
        *mixer_oracle.ragged(70, 47, width=16))  # in two tiles
