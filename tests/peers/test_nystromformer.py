"""Compares Nystromformer with the package nystrom-attention."""

from lra.models.nystromformer import Mixer
from tests.helpers import mixer_oracle, peer


def test_nystrom_attention(check):
  package = peer.load('nystrom_attention', 'nystrom-attention')
  module = package.NystromAttention(
      dim=16, dim_head=8, heads=2, num_landmarks=4, residual_conv_kernel=5)

  def theirs(params, x, mask):
    return peer.apply(module, 'nystromformer', 'nystrom-attention', params, x)

  check('nystrom-attention', Mixer(
      num_heads=2, qkv_width=16, num_landmarks=4, conv_width=5,
      pinv_init='original', qkv_bias=False), theirs,
        *mixer_oracle.ragged(24, 24, width=16))
