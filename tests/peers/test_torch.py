"""Compares softmax attention with PyTorch's."""

import pytest

from lra import models
from lra.models import gqa, transformer
from tests.helpers import mixer_oracle, peer

torch = peer.torch
X, MASK = mixer_oracle.ragged(24, 17, width=16)


def test_multihead_attention(check):
  # In eval mode PyTorch may take a path without gradients.
  module = torch.nn.MultiheadAttention(16, 2, batch_first=True).train()

  def theirs(params, x, mask):
    return peer.apply(
        module, 'transformer', 'torch', params, x, x, x, key_padding_mask=~mask,
        need_weights=False)[0]

  check('torch', transformer.Mixer(num_heads=2, qkv_width=16), theirs, X, MASK)


@pytest.mark.parametrize('mixer', [
    gqa.Mixer(num_heads=4, qkv_width=16, num_kv_heads=2),
    models.mixer('mqa')(num_heads=4, qkv_width=16)])
def test_grouped_heads(check, mixer):
  def attend(q, k, v, mask):
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask[:, None, None], enable_gqa=True)

  check('torch', mixer, peer.around(attend), X, MASK)
