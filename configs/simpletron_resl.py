"""SimpleTRON-ResL (arXiv 2111.15588): with a skip and an output projection.

python run_lra.py --config=configs/simpletron_resl.py:listops_mini

Reaches 48.1 % (baseline 22.3 %).
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'simpletron_resl'
  config.model.kernel = 'auto'
  # The inner skip adds the heads to x, so they have its width.
  config.model.qkv_width = config.encoder.get_oneway_ref('width')
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
