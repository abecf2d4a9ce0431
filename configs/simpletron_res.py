"""SimpleTRON-Res (arXiv 2111.15588): with a skip inside the attention layer.

python run_lra.py --config=configs/simpletron_res.py:listops_mini
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'simpletron_res')
  # Without an output projection, all heads together are as wide as the encoder.
  config.model.qkv_width = config.encoder.get_oneway_ref('width')
  return config
