"""Infini-attention (arXiv 2404.07143): segments and a memory of earlier ones.

python run_lra.py --config=configs/infini.py:listops_mini

Reaches 51.7 % (floor 22.3 %).

Segments of 256 tokens (2,048 in the paper, whose texts are longer by as much),
8 on the mini tasks.

The first position of a causal model sees nothing, so sequences are pooled over
their tokens instead of read from CLS. Where the protocol reads CLS, this is a
change of it: the row stands apart, and is recorded with --record only.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'infini'
  config.model.segment_size = base.by_size(config, 256, mini=8)
  config.model.delta = True
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  config.encoder.pooling = 'mean'
  return config
