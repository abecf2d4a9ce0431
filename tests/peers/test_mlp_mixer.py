"""Compares the token-mixing MLP of MLP-Mixer with timm's.

Both use the approximate GELU of the paper's code, which is not timm's default.
"""

import functools

from lra.models.mlp_mixer import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


def test_timm(check):
  package = peer.load('timm.models.mlp_mixer', 'timm')
  module = package.MixerBlock(dim=8, seq_len=21, act_layer=functools.partial(
      torch.nn.GELU, approximate='tanh')).mlp_tokens

  def theirs(params, x, mask):
    parts = {layer: {'weight': params[f'{name}_kernel'].T,
                     'bias': params[f'{name}_bias']}
             for layer, name in (('fc1', 'up'), ('fc2', 'down'))}
    return peer.call(module, parts, x.transpose(1, 2)).transpose(1, 2)

  check('timm', Mixer(hidden=4), theirs,
        *mixer_oracle.ragged(21, 21, width=8))
