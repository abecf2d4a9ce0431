"""Transformer (arXiv 1706.03762): softmax attention over all positions.

python run_lra.py --config=configs/transformer.py:listops_mini

Reaches 52.6 % (baseline 22.3 %).

With `protocol=lra` (the code of Long Range Arena) the projections of queries,
keys and values have no biases. With `lra` and `nystrom` attention weights have
a dropout rate of 0.1.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'transformer'
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  config.model.attention_dropout = base.argument(config, 'attention_dropout')
  return config
