"""Compares Reformer's LSH attention with reformer-pytorch, with our rotations.

The package sorts padding among the tokens, so there is none. Its logit of a
token with itself is -5e4. If a token sees only itself in several rounds, that
costs too many digits, so the test uses -50.
"""

import numpy as np
import pytest

from lra.models.reformer import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


@pytest.mark.parametrize('rounds', [2, 3])
def test_reformer_pytorch(check, monkeypatch, rounds):
  package = peer.load('reformer_pytorch.reformer_pytorch', 'reformer-pytorch')
  monkeypatch.setattr(package, 'TOKEN_SELF_ATTN_VALUE', -50.0)
  attention = package.LSHAttention(
      bucket_size=4, n_hashes=rounds, attend_across_buckets=False,
      allow_duplicate_attention=False, random_rotations_per_head=True)
  x, mask = mixer_oracle.ragged(32, 32, width=16)
  mixer = Mixer(num_heads=2, qkv_width=16, rounds=rounds, chunk_size=4,
                num_buckets=8)
  variables = mixer_oracle.init(mixer, x, mask)
  rotations = np.array(variables['constants']['rotations'])  # [H, R, Dh, M]

  def drawn(shape, **_):
    assert shape == (4, 8, rounds, 4)  # batch and heads share the first axis
    return torch.tensor(rotations).transpose(1, 2).repeat(2, 1, 1, 1)

  monkeypatch.setattr(torch, 'randn', drawn)

  def theirs(params, x, mask):
    qk, v = (peer.heads(x, params[name]).flatten(0, 1)
             for name in ('query_key', 'value'))
    o = attention(qk, v)[0]
    return peer.merge(o.reshape(2, 2, 32, 8), params['out'])

  check('reformer-pytorch', mixer, theirs, x, mask, variables=variables)
