"""Linformer (arXiv 2006.04768): keys and values projected along the length.

python run_lra.py --config=configs/linformer.py:listops_mini

M = 256 landmarks as in the paper. One matrix serves keys and values of all
heads, as in the Long Range Arena release. The mini tasks have that release's
default of M = 16: 256 landmarks would be more than tokens, or would more than
double the Transformer's parameters.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'linformer')
  config.model.num_landmarks = base.by_size(config, 256, mini=16)
  return config
