"""The depth-wise half beside timm's ConvMixer, on images one pixel wide.

Its batch norm is left out; a layer norm of PyTorch stands in its place.
"""

import numpy as np
import pytest

pytest.importorskip('torch', reason='peers are PyTorch modules')
import torch

from lra.models.conv_mixer import Mixer
from peers import torch_peer


def test_timm():
  peers = pytest.importorskip('timm.models.convmixer', reason='the peer')
  torch.manual_seed(0)
  conv, gelu, _ = peers.ConvMixer(dim=8, depth=1, kernel_size=9).blocks[0][0].fn
  params = {
      'conv': torch_peer.array(conv.weight)[:, 0, :, 4].T,  # of 9 by 9
      'bias': torch_peer.array(conv.bias),
      'norm': {'scale': np.ones(8, 'f'), 'bias': np.zeros(8, 'f')}}
  mixer, mask = Mixer(conv_width=9), np.ones((2, 21), bool)

  def peer(x):
    y = gelu(conv(x.transpose(1, 2)[..., None]))[..., 0].transpose(1, 2)
    return torch.nn.functional.layer_norm(y, (8,), eps=1e-6)

  torch_peer.check(
      lambda x: mixer.apply({'params': params}, x, mask, train=False), peer,
      torch_peer.inputs(2, 21, 8))
