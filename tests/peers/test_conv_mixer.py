"""The depth-wise half beside timm's ConvMixer, on images one pixel wide.

Its batch norm is left out; a layer norm of PyTorch stands in its place.
"""

from lra.models.conv_mixer import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


def test_timm(check):
  package = peer.load('timm.models.convmixer', 'timm')
  conv, gelu, _ = package.ConvMixer(
      dim=8, depth=1, kernel_size=9).blocks[0][0].fn

  def theirs(params, x, mask):
    middle = params['conv'].T[:, None, :, None]  # of 9 by 9
    weight = torch.nn.functional.pad(middle, (4, 4))
    y = gelu(peer.call(conv, {'': {'weight': weight, 'bias': params['bias']}},
                       x.transpose(1, 2)[..., None]))
    return torch.nn.functional.layer_norm(
        y[..., 0].transpose(1, 2), (8,), params['norm']['scale'],
        params['norm']['bias'], eps=1e-6)

  check('timm', Mixer(conv_width=9), theirs,
        *mixer_oracle.ragged(21, 21, width=8))
