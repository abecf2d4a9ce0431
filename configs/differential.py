"""Differential attention (arXiv 2410.05258): one softmax minus another.

python run_lra.py --config=configs/differential.py:listops_mini

Reaches 50.6 % (baseline 22.3 %).

Heads and widths are the Transformer's. A protocol's single head becomes two
here, and the second is subtracted.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'differential'
  config.model.num_heads = max(config.model.num_heads, 2)
  config.model.kernel = 'auto'
  # True rotates queries and keys by position, as in the released code.
  config.model.rotary = False
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
