"""Compares efficient attention with linear-attention-transformer.

The package divides the queries by sqrt(Dh), and the test multiplies the output
by it again. Neither the paper nor its released code has this division.
"""

from lra.models.shen import Mixer
from tests.helpers import mixer_oracle, peer


def test_linear_attention_transformer(check):
  package = peer.load(
      'linear_attention_transformer.linear_attention_transformer',
      'linear-attention-transformer')

  def attend(q, k, v, mask):
    return package.linear_attn(q, k, v, mask) * q.shape[-1]**0.5

  check('linear-attention-transformer', Mixer(num_heads=2, qkv_width=16),
        peer.around(attend), *mixer_oracle.ragged(20, 13, width=16))
