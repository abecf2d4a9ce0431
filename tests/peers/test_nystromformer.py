"""Nystromformer beside transformers' and nystrom-attention's."""

import numpy as np
import pytest

pytest.importorskip('torch', reason='peers are PyTorch modules')
import torch

from lra.models.nystromformer import Mixer
from peers import torch_peer

ALL = np.ones((2, 24), bool)


def _run(params, **options):
  mixer = Mixer(num_heads=2, qkv_width=16, num_landmarks=4, conv_width=5,
                pinv_init='original', **options)
  return lambda x: mixer.apply({'params': params}, x, ALL, train=False)


def _conv(conv):
  """[H, 1, K, 1] -> [K, H, 1]."""
  return torch_peer.array(conv.weight)[:, 0, :, 0].T[..., None]


def test_transformers():
  peers = pytest.importorskip(
      'transformers.models.nystromformer', reason='the peer')
  torch.manual_seed(0)
  peer = peers.modeling_nystromformer.NystromformerSelfAttention(
      peers.NystromformerConfig(
          hidden_size=16, num_attention_heads=2, num_landmarks=4,
          segment_means_seq_len=24, conv_kernel_size=5)).eval()
  params = {name: torch_peer.split(torch_peer.dense(getattr(peer, name)), 2)
            for name in ('query', 'key', 'value')}
  params |= {'conv': _conv(peer.conv), 'out': torch_peer.identity(2, 16)}
  torch_peer.check(_run(params), lambda x: peer(x)[0],
                   torch_peer.inputs(2, 24, 16))


def test_nystrom_attention():
  peers = pytest.importorskip('nystrom_attention', reason='the peer')
  torch.manual_seed(0)
  peer = peers.NystromAttention(
      dim=16, dim_head=8, heads=2, num_landmarks=4, residual_conv_kernel=5)
  kernels = np.split(torch_peer.dense(peer.to_qkv)['kernel'], 3, axis=1)
  params = {name: torch_peer.split({'kernel': kernel}, 2) for name, kernel in
            zip(('query', 'key', 'value'), kernels, strict=True)}
  params |= {'conv': _conv(peer.res_conv),
             'out': torch_peer.merge(torch_peer.dense(peer.to_out[0]), 2)}
  torch_peer.check(_run(params, qkv_bias=False), peer,
                   torch_peer.inputs(2, 24, 16))
