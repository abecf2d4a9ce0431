"""The memory of infini-transformer-pytorch, segment by segment.

Its gate weighs the local attention, ours the memory; and it leaves the first
segment ungated, unless it is given an empty memory, as here.
"""

import numpy as np
import pytest

pytest.importorskip('torch', reason='peers are PyTorch modules')
import torch

from lra.models.infini import Mixer
from peers import torch_peer


@pytest.mark.parametrize('delta', [True, False])
def test_infini_transformer_pytorch(delta):
  peers = pytest.importorskip(
      'infini_transformer_pytorch.infini_transformer', reason='the peer')
  torch.manual_seed(0)
  memory = peers.FastweightMemory(heads=2, use_mem_delta_rule=delta)
  memory.head_gates.data = torch.tensor([0.3, -1.0])
  layers = {name: torch.nn.Linear(16, 16) for name in ('query', 'key', 'value')}
  params = {name: torch_peer.split(torch_peer.dense(layer), 2)
            for name, layer in layers.items()}
  params |= {'beta': -torch_peer.array(memory.head_gates),
             'out': torch_peer.identity(2, 16)}

  def peer(x):
    heads = [layer(x).reshape(2, 20, 2, 8).transpose(1, 2)
             for layer in layers.values()]
    past = peers.Memories(torch.zeros(2, 2, 8, 8), torch.zeros(2, 2, 8))
    segments = []
    for start in range(0, 20, 5):
      q, k, v = (y[:, :, start:start + 5] for y in heads)
      near = torch.nn.functional.scaled_dot_product_attention(
          q, k, v, is_causal=True)
      segments.append(memory.retrieve_and_add_to_output(near, q, past))
      past = memory.create_new_memories(k, v, past)
    return torch.cat(segments, 2).transpose(1, 2).reshape(2, 20, 16)

  mixer = Mixer(num_heads=2, qkv_width=16, segment_size=5, delta=delta)
  mask = np.ones((2, 20), bool)
  torch_peer.check(
      lambda x: mixer.apply({'params': params}, x, mask, train=False), peer,
      torch_peer.inputs(2, 20, 16))
