"""Windows against the package local-attention, on the same weights."""

import mixer_oracle
import pytest

from lra.models import ngram, sliding_window

torch_mixer = pytest.importorskip('torch_mixer', reason='it needs PyTorch')
local_attention = pytest.importorskip(
    'local_attention', reason='the package local-attention is not installed')


@pytest.mark.parametrize('mixer,causal', [
    (sliding_window.Mixer(num_heads=2, qkv_width=8, radius=5), False),
    (ngram.Mixer(num_heads=2, qkv_width=8, order=6), True)])
def test_window_of_the_exact_size(mixer, causal):
  x, mask = mixer_oracle.ragged(40, 23, width=12)
  peer = local_attention.LocalAttention(
      window_size=5, causal=causal, exact_windowsize=True)
  torch_mixer.check(
      mixer, lambda q, k, v, mask: peer(q, k, v, mask=mask),
      mixer_oracle.init(mixer, x, mask), x, mask)
