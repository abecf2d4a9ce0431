"""Compares Nystromformer with the package nystrom-attention."""

from lra.models.nystromformer import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


def test_nystrom_attention(check):
  package = peer.load('nystrom_attention', 'nystrom-attention')
  module = package.NystromAttention(
      dim=16, dim_head=8, heads=2, num_landmarks=4, residual_conv_kernel=5)

  def theirs(params, x, mask):
    return peer.call(module, {
        'to_qkv': {'weight': torch.cat([
            peer.linear(params[name])['weight']
            for name in ('query', 'key', 'value')])},
        'res_conv': {'weight': params['conv'].permute(1, 2, 0)[..., None]},
        'to_out.0': peer.linear(params['out'], 2)}, x)

  check('nystrom-attention', Mixer(
      num_heads=2, qkv_width=16, num_landmarks=4, conv_width=5,
      pinv_init='original', qkv_bias=False), theirs,
        *mixer_oracle.ragged(24, 24, width=16))
