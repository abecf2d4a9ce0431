"""Compares the Conformer with PyTorch's attention and conformer's convolution.

A layer norm replaces the batch norm in the package's convolution.
"""

from lra.models.conformer import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


class _ChannelNorm(torch.nn.LayerNorm):
  """Layer norm over the channels C of [B, C, L]."""

  def forward(self, x):
    return super().forward(x.transpose(1, 2)).transpose(1, 2)


def test_conformer(check):
  package = peer.load('conformer.conformer', 'conformer')
  net = package.ConformerConvModule(
      dim=8, expansion_factor=2, kernel_size=7).net
  net[0].eps, net[5] = 1e-6, _ChannelNorm(16, eps=1e-6)
  attended = peer.around(
      lambda q, k, v, _: torch.nn.functional.scaled_dot_product_attention(
          q, k, v))

  def norm(params):
    return {'weight': params['scale'], 'bias': params['bias']}

  def theirs(params, x, mask):
    conv, y = params['conv'], attended(params, x, mask)
    gated = [peer.linear(conv[name]) for name in ('value', 'gate')]
    out = peer.linear(conv['out'])
    return y + peer.call(net, {
        '0': norm(conv['norm_in']),
        '2': {'weight': torch.cat([z['weight'] for z in gated])[..., None],
              'bias': torch.cat([z['bias'] for z in gated])},
        '4.conv': {'weight': conv['depthwise'].T[:, None],
                   'bias': conv['depthwise_bias']},
        '5': norm(conv['norm']),
        '7': {**out, 'weight': out['weight'][..., None]}}, x + y)

  check('conformer', Mixer(
      num_heads=2, qkv_width=8, conv_width=7, conv_expansion=2), theirs,
        *mixer_oracle.ragged(21, 21, width=8))
