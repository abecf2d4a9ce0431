"""BigBird (arXiv 2007.14062): neighbouring, global and random blocks of keys.

python run_lra.py --config=configs/bigbird.py:listops_mini

Blocks of 64. A query sees 3 blocks in its window, 2 global and 3 random ones.
So do the paper's base model (appendix E, internal construction) and the Long
Range Arena release. On listops_mini a query sees all blocks, since there are
only a few of 8 tokens each.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'bigbird')
  config.model.block_size = base.by_size(config, 64, mini=8)
  return config
