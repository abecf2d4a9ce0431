"""Compares graph attention with PyTorch Geometric's GATConv.

The package gets the edges of the chain, with each token's own. It has neither
the ELU of the paper's layers nor padding.
"""

from lra.models.gat import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


def test_torch_geometric(check):
  nn = peer.load('torch_geometric.nn', 'torch-geometric')
  length, radius = 20, 3
  conv = nn.GATConv(16, 8, heads=2, add_self_loops=False)
  edges = torch.tensor([[j, i] for i in range(length) for j in range(length)
                        if abs(i - j) <= radius]).T

  def theirs(params, x, mask):
    return torch.stack([torch.nn.functional.elu(peer.call(
        conv, {'': {'att_src': params['other_score'][None],
                    'att_dst': params['own_score'][None],
                    'bias': params['bias']},
               'lin': peer.linear(params['value'])}, row, edges)) for row in x])

  check('torch-geometric', Mixer(num_heads=2, radius=radius), theirs,
        *mixer_oracle.ragged(length, length, width=16))
