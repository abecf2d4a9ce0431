"""Compares Infini-attention with infini-transformer-pytorch's memory.

The package's gate weighs the local attention, ours the memory, so the sign of
`beta` is changed. Given an empty memory, the package gates the first segment
too, as we do.
"""

import pytest

from lra.models.infini import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


@pytest.mark.parametrize('delta', [True, False])
def test_infini_transformer_pytorch(check, delta):
  package = peer.load('infini_transformer_pytorch.infini_transformer',
                      'infini-transformer-pytorch')
  memory = package.FastweightMemory(heads=2, use_mem_delta_rule=delta)
  del memory.head_gates

  def theirs(params, x, mask):
    memory.head_gates = -params['beta']
    qkv = [peer.heads(x, params[name]) for name in ('query', 'key', 'value')]
    past = package.Memories(torch.zeros(2, 2, 8, 8), torch.zeros(2, 2, 8))
    segments = []
    for start in range(0, 20, 5):
      q, k, v = (y[:, :, start:start + 5] for y in qkv)
      near = torch.nn.functional.scaled_dot_product_attention(
          q, k, v, is_causal=True)
      segments.append(memory.retrieve_and_add_to_output(near, q, past))
      past = memory.create_new_memories(k, v, past)
    return peer.merge(torch.cat(segments, 2), params['out'])

  mixer = Mixer(num_heads=2, qkv_width=16, segment_size=5, delta=delta)
  check('infini-transformer-pytorch', mixer, theirs,
        *mixer_oracle.ragged(20, 20, width=16))
