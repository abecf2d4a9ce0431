"""Differential attention (arXiv 2410.05258): one softmax minus another.

python run_lra.py --config=configs/differential.py:listops_mini

Reaches 50.6 % (floor 22.3 %).

Heads and widths are the Transformer's; a single head, as some protocols have,
becomes two, of which one is subtracted.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'differential'
  config.model.num_heads = max(config.model.num_heads, 2)
  config.model.kernel = 'auto'
  # True turns queries and keys by position, as the released code does.
  config.model.rotary = False
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
