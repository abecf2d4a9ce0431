"""The token-mixing perceptron beside timm's."""

import functools

import numpy as np
import pytest

pytest.importorskip('torch', reason='peers are PyTorch modules')
import torch

from lra.models.mlp_mixer import Mixer
from peers import torch_peer


def test_timm():
  peers = pytest.importorskip('timm.models.mlp_mixer', reason='the peer')
  torch.manual_seed(0)
  # Their default is the exact GELU; the paper's code has the approximate one.
  peer = peers.MixerBlock(
      dim=8, seq_len=21,
      act_layer=functools.partial(torch.nn.GELU, approximate='tanh')).mlp_tokens
  params = {}
  for name, layer in (('up', peer.fc1), ('down', peer.fc2)):
    for part, p in torch_peer.dense(layer).items():
      params[f'{name}_{part}'] = p
  mixer, mask = Mixer(hidden=4), np.ones((2, 21), bool)
  torch_peer.check(
      lambda x: mixer.apply({'params': params}, x, mask, train=False),
      lambda x: peer(x.transpose(1, 2)).transpose(1, 2),
      torch_peer.inputs(2, 21, 8))
