"""Optimised attention (arXiv 2403.01643): no projection of values.

python run_lra.py --config=configs/optimised.py:listops_mini

Reaches 51.2 % (baseline 22.3 %).

The paper adds no setting to those of the protocol.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'optimised'
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
