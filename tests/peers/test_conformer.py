"""The convolution module beside conformer's, its batch norm replaced."""

import numpy as np
import pytest

pytest.importorskip('torch', reason='peers are PyTorch modules')
import jax.numpy as jnp
import torch

from lra.models.conformer import Convolution
from peers import torch_peer


class _ChannelNorm(torch.nn.Module):
  """A layer norm of [B, C, L] over C, without parameters."""

  def forward(self, x):
    y = torch.nn.functional.layer_norm(
        x.transpose(1, 2), x.shape[1:2], eps=1e-6)
    return y.transpose(1, 2)


def test_conformer():
  peers = pytest.importorskip('conformer.conformer', reason='the peer')
  torch.manual_seed(0)
  net = peers.ConformerConvModule(dim=8, expansion_factor=2, kernel_size=7).net
  net[0].eps, net[5] = 1e-6, _ChannelNorm()
  both = torch_peer.dense(net[2])
  params = {name: {part: np.split(p, 2, axis=-1)[i]
                   for part, p in both.items()}
            for i, name in enumerate(('value', 'gate'))}
  conv = net[4].conv
  params |= {
      'norm_in': {'scale': np.ones(8, 'f'), 'bias': np.zeros(8, 'f')},
      'norm': {'scale': np.ones(16, 'f'), 'bias': np.zeros(16, 'f')},
      'depthwise': torch_peer.array(conv.weight)[:, 0].T,
      'depthwise_bias': torch_peer.array(conv.bias),
      'out': torch_peer.dense(net[7])}
  mask = np.ones((2, 21), bool)
  module = Convolution(conv_width=7, channels=16, dtype=jnp.float32)
  torch_peer.check(lambda x: module.apply({'params': params}, x, mask), net,
                   torch_peer.inputs(2, 21, 8))
