"""Compares mLSTM with the layer of the package xlstm."""

from lra.models import mlstm
from tests.helpers import mixer_oracle, peer

torch = peer.torch


def test_mlstm(check):
  package = peer.load('xlstm.blocks.mlstm.layer', 'xlstm')
  module = package.mLSTMLayer(package.mLSTMLayerConfig(
      embedding_dim=32, num_heads=2, context_length=24))

  def headwise(weight):
    return {'weight': weight.permute(0, 2, 1)}

  def theirs(params, x, mask):
    del mask
    cell = {name: peer.linear(params[ours]) for name, ours in (
        ('igate', 'input_gate'), ('fgate', 'forget_gates'))}
    return peer.call(module, {
        '': {'learnable_skip': params['skip']},
        'proj_up': {'weight': torch.cat([
            peer.linear(params[name])['weight']
            for name in ('inputs', 'gate')])},
        'proj_down': peer.linear(params['out']),
        'conv1d.conv': {
            'weight': params['convolution']['kernel'].T[:, None],
            'bias': params['convolution']['bias']},
        **{f'{name[0]}_proj': headwise(params[name])
           for name in ('query', 'key', 'value')},
        **{f'mlstm_cell.{name}': dense for name, dense in cell.items()},
        'mlstm_cell.outnorm': {'weight': params['norm'] - 1}}, x)

  check('xlstm', mlstm.Mixer(num_heads=2, direction='causal'), theirs,
        *mixer_oracle.ragged(24, 24, width=32))
