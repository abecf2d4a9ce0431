"""FastFood-RKS (arXiv 2110.08323): a learned kernel, cosines and sines.

python run_lra.py --config=configs/fastfood_rks.py:listops_mini

Dh frequencies, as in the paper's released code for Dh = 64 and 32. Each gives a
cosine and a sine; the constant takes one frequency.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'fastfood_rks')
  config.model.num_features = base.num_features(
      config, 2 * base.head_width(config))
  return config
