"""Compressive Transformer (arXiv 1911.05507): older segments as summaries.

python run_lra.py --config=configs/compressive.py:listops_mini

Reaches 54.8 % (floor 22.3 %).

A quarter as many summaries as inputs, within the paper's rates of 2 to 4, of
four older segments of 128 tokens: a query sees as many summaries as a segment
has positions. The mini tasks have segments of 8, short probes of 6 and their
summaries of two inputs.

The first position of a causal model sees nothing, so sequences are pooled over
their tokens instead of read from CLS. Where the protocol reads CLS, this is a
change of it: the row stands apart, and is recorded with --record only.
"""

import math

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'compressive'
  config.model.segment_size = base.by_size(config, 128, mini=8)
  config.model.memory_segments = 4
  config.model.rate = base.derived(
      lambda size: math.gcd(4, size), config.model.get_ref('segment_size'))
  config.model.compression = 'convolution'  # or mean or max
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  config.encoder.pooling = 'mean'
  return config
