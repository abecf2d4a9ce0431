"""Efficient attention (arXiv 1812.01243): two softmaxes, Q (K^T V).

python run_lra.py --config=configs/shen.py:listops_mini

Reaches 51.0 % (baseline 22.3 %).
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'shen'
  config.model.normalization = 'softmax'  # or scaling
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
