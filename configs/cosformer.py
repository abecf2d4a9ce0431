"""cosFormer (arXiv 2202.08791): ReLU features, faded by a cosine of distance.

python run_lra.py --config=configs/cosformer.py:listops_mini

Reaches 47.2 % (floor 22.3 %).
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'cosformer'
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
