"""Efficient attention beside linear-attention-transformer's.

That one also divides the queries by sqrt(Dh), which neither the paper nor its
released code does: it is taken back here.
"""

import numpy as np
import pytest

pytest.importorskip('torch', reason='peers are PyTorch modules')
import torch

from lra.models.shen import Mixer
from peers import torch_peer


def test_linear_attention_transformer():
  peers = pytest.importorskip(
      'linear_attention_transformer.linear_attention_transformer',
      reason='the peer')
  torch.manual_seed(0)
  layers = {name: torch.nn.Linear(16, 16) for name in ('query', 'key', 'value')}
  params = {name: torch_peer.split(torch_peer.dense(layer), 2)
            for name, layer in layers.items()}
  params['out'] = torch_peer.identity(2, 16)
  mask = np.arange(20) < np.array([20, 13])[:, None]
  keep = mask[..., None].astype(np.float32)

  def peer(x):
    q, k, v = (layer(x).reshape(2, 20, 2, 8).transpose(1, 2)
               for layer in layers.values())
    y = peers.linear_attn(q, k, v, torch.tensor(mask)) * 8**0.5
    return y.transpose(1, 2).reshape(2, 20, 16) * torch.tensor(keep)

  mixer = Mixer(num_heads=2, qkv_width=16)
  torch_peer.check(
      lambda x: mixer.apply({'params': params}, x, mask, train=False) * keep,
      peer, torch_peer.inputs(2, 20, 16))
