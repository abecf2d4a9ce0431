"""Compares cross attention with isab-pytorch's induced set attention.

The package projects the latents to queries, and projects the output of the
first attention. Our mixer does neither, so both get the identity. In the second
attention, keys and values use block-diagonal projections, as ours mix no heads.
"""

from lra.models.cross import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


def test_isab_pytorch(check):
  package = peer.load('isab_pytorch.isab_pytorch', 'isab-pytorch')
  read, write = (package.Attention(16, heads=2, dim_head=8) for _ in range(2))
  nothing = {'weight': torch.eye(16)}

  def joined(key, value):
    return {'weight': torch.cat([key, value])}

  def theirs(params, x, mask):
    latents = params['latents'].reshape(1, 5, 16).expand(len(x), -1, -1)
    key, value = (peer.linear(params[name])['weight']
                  for name in ('key', 'value'))
    z = peer.call(read, {'to_q': nothing, 'to_kv': joined(key, value),
                         'to_out': nothing}, latents, x, mask=mask)
    own = joined(*(torch.block_diag(*params[name]).T
                   for name in ('latent_key', 'latent_value')))
    out = peer.linear(params['out'], 2)
    return out.pop('bias') + peer.call(
        write, {'to_q': peer.linear(params['query']), 'to_kv': own,
                'to_out': out}, x, z)

  check('isab-pytorch',
        Mixer(num_heads=2, qkv_width=16, num_latents=5, qkv_bias=False),
        theirs, *mixer_oracle.ragged(24, 17, width=16))
