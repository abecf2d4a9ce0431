"""Compares rotary attention with rotary-embedding-torch.

The package rotates the channels 2 i and 2 i + 1, ours i and i + Dh / 2.
"""

from lra.models.transformer_rotary import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


def test_neighbouring_channels(check):
  package = peer.load('rotary_embedding_torch', 'rotary-embedding-torch')
  rotary = package.RotaryEmbedding(dim=8)

  def attend(q, k, v, mask):
    q, k = (rotary.rotate_queries_or_keys(
        torch.stack(y.chunk(2, -1), -1).flatten(-2)) for y in (q, k))
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask[:, None, None])

  check('rotary-embedding-torch', Mixer(num_heads=2, qkv_width=16),
        peer.around(attend), *mixer_oracle.ragged(24, 17, width=16))
