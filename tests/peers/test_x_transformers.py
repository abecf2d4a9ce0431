"""Compares ALiBi and selective attention with x-transformers."""

from lra.models import selective, transformer_alibi
from tests.helpers import mixer_oracle, peer

torch = peer.torch
X, MASK = mixer_oracle.ragged(150, 97, width=16)  # in two blocks of queries


def test_alibi(check):
  """Both use absolute distances, and with 4 heads the same slopes."""
  package = peer.load('x_transformers.x_transformers', 'x-transformers')
  bias = package.AlibiPositionalBias(4)

  def attend(q, k, v, mask):
    length = q.shape[2]
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=bias(length, length)[None].masked_fill(
            ~mask[:, None, None], -1e9))

  check('x-transformers', transformer_alibi.Mixer(num_heads=4, qkv_width=16),
        peer.around(attend), X, MASK)


def test_selective(check):
  """The package's function changes causally masked logits."""
  package = peer.load('x_transformers.attend', 'x-transformers')

  def attend(q, k, v, mask):
    logits = q @ k.transpose(-1, -2) * q.shape[-1]**-0.5
    seen = torch.ones(logits.shape[-2:], dtype=bool).tril()
    logits = package.selective_attn(
        logits.masked_fill(~(seen & mask[:, None, None]), -1e9))
    return logits.softmax(-1) @ v

  check('x-transformers',
        selective.Mixer(num_heads=2, qkv_width=16, direction='causal'),
        peer.around(attend), X, MASK)
