"""Compares the Linear Transformer with the attention of kornia's LoFTR."""

from lra.models.linear_transformer import Mixer
from tests.helpers import mixer_oracle, peer


def test_linear_attention(check):
  package = peer.load('kornia.feature.loftr.loftr_module.linear_attention',
                      'kornia')
  attention = package.LinearAttention()

  def attend(q, k, v, mask):
    q, k, v = (y.transpose(1, 2) for y in (q, k, v))
    return attention(q, k, v, kv_mask=mask).transpose(1, 2)

  check('kornia', Mixer(num_heads=2, qkv_width=16), peer.around(attend),
        *mixer_oracle.ragged(24, 17, width=16))
