"""Differential attention (arXiv 2410.05258): one softmax minus another.

python run_lra.py --config=configs/differential.py:listops_mini

Heads and widths are the Transformer's. A protocol's single head becomes two
here, and the second is subtracted.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'differential')
  config.model.num_heads = max(config.model.num_heads, 2)
  return config
