"""Linear Transformer on any task, at the sizes of the protocol.

python run_lra.py --config=configs/linear_transformer.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'linear_transformer'
  config.model.kernel = 'auto'
  config.model.qkv_bias = config.protocol != 'lra'
  return config
