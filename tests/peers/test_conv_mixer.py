"""Compares ConvMixer's depthwise convolution with timm's ConvMixer.

Images are one pixel wide. A layer norm of PyTorch replaces timm's batch norm.
"""

from lra.models.conv_mixer import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


def test_timm(check):
  package = peer.load('timm.models.convmixer', 'timm')
  conv, gelu, _ = package.ConvMixer(
      dim=8, depth=1, kernel_size=9).blocks[0][0].fn

  def theirs(params, x, mask):
    middle = params['conv'].T[:, None, :, None]  # column 5 of a 9 x 9 kernel
    weight = torch.nn.functional.pad(middle, (4, 4))
    y = gelu(peer.call(conv, {'': {'weight': weight, 'bias': params['bias']}},
                       x.transpose(1, 2)[..., None]))
    return torch.nn.functional.layer_norm(
        y[..., 0].transpose(1, 2), (8,), params['norm']['scale'],
        params['norm']['bias'], eps=1e-6)

  check('timm', Mixer(conv_width=9), theirs,
        *mixer_oracle.ragged(21, 21, width=8))
