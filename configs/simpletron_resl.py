"""SimpleTRON-ResL (arXiv 2111.15588): with a skip and an output projection.

python run_lra.py --config=configs/simpletron_resl.py:listops_mini
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'simpletron_resl')
  # The inner skip adds the heads to x, so they have its width.
  config.model.qkv_width = config.encoder.get_oneway_ref('width')
  return config
