"""FNet beside transformers'."""

import numpy as np
import pytest

pytest.importorskip('torch', reason='peers are PyTorch modules')
from lra.models.fnet import Mixer
from peers import torch_peer


def test_transformers():
  peers = pytest.importorskip('transformers.models.fnet', reason='the peer')
  peer = peers.modeling_fnet.FNetBasicFourierTransform(peers.FNetConfig(
      hidden_size=8, use_tpu_fourier_optimizations=False))
  mask = np.ones((2, 21), bool)
  torch_peer.check(
      lambda x: Mixer(orthonormal=False).apply({}, x, mask, train=False),
      lambda x: peer(x)[0], torch_peer.inputs(2, 21, 8))
