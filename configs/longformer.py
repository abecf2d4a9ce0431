"""Longformer (arXiv 2004.05150): a window of 512 and a global CLS token.

python run_lra.py --config=configs/longformer.py:listops_mini

The window is that of the paper (section 3.1 and table 12) and of the Long Range
Arena release, which has no global token. The global token is CLS, or the first
token without CLS pooling.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'longformer')
  config.model.window = base.by_size(config, 512, mini=64)
  config.model.num_global = 1
  del config.model.dilation  # always 1
  return config
