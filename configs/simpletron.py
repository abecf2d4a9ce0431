"""SimpleTRON (arXiv 2111.15588): attention without softmax, Q (K^T V).

python run_lra.py --config=configs/simpletron.py:listops_mini
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'simpletron')
  # Without an output projection, all heads together are as wide as the encoder.
  config.model.qkv_width = config.encoder.get_oneway_ref('width')
  return config
