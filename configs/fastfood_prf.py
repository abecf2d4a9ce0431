"""FastFood-PRF (arXiv 2110.08323): a learned kernel, positive features.

python run_lra.py --config=configs/fastfood_prf.py:listops_mini

Dh features, as in the paper's released code for Dh = 64 and 32.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'fastfood_prf')
  config.model.num_features = base.num_features(
      config, base.head_width(config))
  return config
