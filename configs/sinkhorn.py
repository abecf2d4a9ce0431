"""Sinkhorn (arXiv 2002.11296): own block and one sorted block.

python run_lra.py --config=configs/sinkhorn.py:listops_mini

Blocks of 50, as in the Long Range Arena release. Temperature 0.75 and 7
iterations are within the ranges that the paper explores. The hidden layer of
the sorting network has the width of a head; the paper's has the model's. This
keeps the number of parameters near the Transformer's.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'sinkhorn')
  config.model.block_size = base.by_size(config, 50, mini=16)
  config.model.sort_width = base.head_width(config)
  return config
