"""Compares Linformer with the package linformer; heads share projections."""

import pytest

from lra.models.linformer import Mixer
from tests.helpers import mixer_oracle, peer


@pytest.mark.parametrize('sharing', ['headwise', 'kv'])
def test_linformer(check, sharing):
  """With `kv` the package gets E as the projection of keys and of values.

  Its own option for sharing would also use the keys as values.
  """
  package = peer.load('linformer.linformer', 'linformer')
  module = package.LinformerSelfAttention(dim=16, seq_len=24, k=5, heads=2)
  x, mask = mixer_oracle.ragged(24, 24, width=16)

  def theirs(params, x, mask):
    if sharing == 'kv':
      params = {**params, 'F': params['E']}
    return peer.apply(module, 'linformer', 'linformer', params, x)

  check('linformer', Mixer(
      num_heads=2, qkv_width=16, num_landmarks=5, sharing=sharing,
      qkv_bias=False), theirs, x, mask)
