"""Compressive Transformer (arXiv 1911.05507): older segments as summaries.

python run_lra.py --config=configs/compressive.py:listops_mini

One summary per four inputs (the paper has 2 to 4) and four older segments of
128 tokens: a query sees as many summaries as a segment has positions. Mini
tasks have segments of 8; short probes have segments of 6 and two inputs per
summary.

The first position of a causal model sees only itself, so sequences are pooled
over their tokens and not read from CLS. If the protocol reads CLS, this changes
the protocol: the result gets a separate row and is recorded only with --record.
"""

import math

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'compressive')
  config.model.segment_size = base.by_size(config, 128, mini=8)
  config.model.rate = base.derived(
      lambda size: math.gcd(4, size), config.model.get_ref('segment_size'))
  config.encoder.pooling = 'mean'
  return config
