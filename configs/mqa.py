"""Multi-query attention (arXiv 1911.02150): one head of keys and values.

python run_lra.py --config=configs/mqa.py:listops_mini

Reaches 53.1 % (floor 22.3 %).

It has no settings of its own: heads and widths are the Transformer's. The
paper widens the MLP until there are as many parameters as before; here the
encoder is that of all models, and there are fewer.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'mqa'
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
