"""Star Attention (arXiv 2411.17116): blocks, each with the first beside it.

python run_lra.py --config=configs/star.py:listops_mini

Blocks of 512; the paper takes a quarter of its sequences, which are far longer.
The CLS token, or without it the first, is the query token.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'star'
  config.model.block_size = base.by_size(config, 512, mini=32)
  config.model.num_queries = 1
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
