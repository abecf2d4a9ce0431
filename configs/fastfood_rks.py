"""FastFood-RKS (arXiv 2110.08323): a learned kernel, cosines and sines.

python run_lra.py --config=configs/fastfood_rks.py:listops_mini

Reaches 43.1 % (floor 22.3 %).

Dh frequencies, as in the paper's released code for Dh = 64 and 32: a cosine and
a sine of each; one of the frequencies is the constant's.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'fastfood_rks'
  config.model.num_features = base.num_features(
      config, 2 * base.head_width(config))
  # True draws another permutation for each training step, as released.
  config.model.redraw = False
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
