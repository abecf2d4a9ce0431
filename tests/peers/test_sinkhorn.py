"""Compares Sinkhorn attention with sinkhorn-transformer.

The package has other sorting networks, so it gets our scores and normalises
them, without noise. By a bug it sorts keys in place of values (`b_v_r =
b_k_r`), so keys and values are equal here.
"""

from lra.models.sinkhorn import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


class _Same(Mixer):
  """Our mixer, with keys as values."""

  def project(self, x):
    q, k, _ = super().project(x)
    return q, k, k


_Same.__module__ = Mixer.__module__


def test_sinkhorn_transformer(check):
  package = peer.load('sinkhorn_transformer.sinkhorn_transformer',
                      'sinkhorn-transformer')
  attention = package.SinkhornAttention(
      bucket_size=5, dim=16, dim_heads=8, heads=2, max_seq_len=20)
  del attention.sort_net
  relu = torch.nn.functional.relu

  def theirs(params, x, mask):
    hidden, out = params['sort_hidden'], params['sort_out']
    sums = x.reshape(2, 4, 5, 16).sum(2)
    hidden = relu(sums @ hidden['kernel'] + hidden['bias'])
    scores = peer.heads(hidden, out).reshape(4, 4, 4)  # [B H, blocks, blocks]
    attention.sort_net = lambda q, k, topk: package.sinkhorn_sorting_operator(
        scores / 0.75, n_iters=7)
    q, k = (peer.heads(x, params[name]) for name in ('query', 'key'))
    unused = 0 * sum(p.sum() for p in params['value'].values())
    return peer.merge(attention(q, k, k), params['out']) + unused

  check('sinkhorn-transformer',
        _Same(num_heads=2, qkv_width=16, block_size=5, sort_width=6), theirs,
        *mixer_oracle.ragged(20, 20, width=16))
