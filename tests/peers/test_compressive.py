"""Compares the Compressive Transformer with compressive-transformer-pytorch.

The package keeps memories between calls, without gradients. So the test passes
them in, compressed by the package's own convolution. Neither side has relative
positions. The package does not mask padding, so there is none.
"""

from lra.models.compressive import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


class _Segment(torch.nn.Module):
  """Attention of the last segment to itself and to memories.

  The previous segment is kept as it is, and two older ones are compressed.
  """

  def __init__(self, attention):
    super().__init__()
    self.attention = attention

  def forward(self, segments):
    *past, now = segments
    summaries = [self.attention.compress_mem_fn(y) for y in past[-3:-1]]
    return self.attention(now, memories=(
        past[-1] if past else None,
        torch.cat(summaries, 1) if summaries else None), calc_memory=False)[0]


def test_compressive_transformer_pytorch(check):
  package = peer.load(
      'compressive_transformer_pytorch.compressive_transformer_pytorch',
      'compressive-transformer-pytorch')
  module = _Segment(package.SelfAttention(
      dim=16, seq_len=6, mem_len=6, cmem_len=4, cmem_ratio=3, heads=2))

  def theirs(params, x, mask):
    key, value = (peer.linear(params[name])['weight']
                  for name in ('key', 'value'))
    compress = params['compress']['kernel'].reshape(3, 16, 16)
    parts = {f'attention.{layer}': part for layer, part in {
        'compress_mem_fn.conv': {'weight': compress.permute(2, 1, 0),
                                 'bias': params['compress']['bias']},
        'to_q': peer.linear(params['query']),
        'to_kv': {'weight': torch.cat([key, value])},
        'to_out': peer.linear(params['out'], 2)}.items()}
    segments = x.split(6, 1)
    return torch.cat([peer.call(module, parts, segments[:n + 1])
                      for n in range(len(segments))], 1)

  check('compressive-transformer-pytorch', Mixer(
      num_heads=2, qkv_width=16, segment_size=6, memory_segments=2, rate=3,
      qkv_bias=False), theirs, *mixer_oracle.ragged(30, 30, width=16))
