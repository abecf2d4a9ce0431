"""Star Attention (arXiv 2411.17116): blocks, each with the first beside it.

python run_lra.py --config=configs/star.py:listops_mini

Reaches 53.6 % (floor 22.3 %).

Blocks of a quarter of the sequence, as in the paper, but no more than 512:
the paper's sequences are far longer, and so are its blocks.
The CLS token, or without it the first, is the query token.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'star'
  config.model.block_size = base.by_size(
      config, base.derived(lambda L: max(min(512, L // 4), 1),
                           base.length(config)), mini=32)
  config.model.num_queries = 1
  # True turns queries and keys by position, as the paper's models does.
  config.model.rotary = False
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
