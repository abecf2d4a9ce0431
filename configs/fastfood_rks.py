"""FastFood-RKS (arXiv 2110.08323) on any task.

Features as in the paper's released code (for Dh = 64 and 32):
Dh frequencies, a cosine and a sine of each; one of them is the constant's.

python run_lra.py --config=configs/fastfood_rks.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'fastfood_rks'
  head_width = config.model.qkv_width // config.model.num_heads
  config.model.num_features = 2 * head_width
  # True draws another permutation for each training step, as released
  config.model.redraw = False
  config.model.kernel = 'auto'
  return config
