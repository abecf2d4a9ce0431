"""SimpleTRON (arXiv 2111.15588): attention without softmax, Q (K^T V).

python run_lra.py --config=configs/simpletron.py:listops_mini
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'simpletron')
  # Heads are added to the residual stream without a projection.
  config.model.qkv_width = config.encoder.get_oneway_ref('width')
  return config
