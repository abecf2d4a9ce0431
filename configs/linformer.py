"""Linformer (arXiv 2006.04768): keys and values projected along the length.

python run_lra.py --config=configs/linformer.py:listops_mini

Reaches 50.9 % (floor 22.3 %).

M = 256 landmarks as in the paper. One matrix serves keys and values of all
heads, as in the Long Range Arena release. The mini tasks have that release's
default of M = 16: there 256 would be more landmarks than tokens, or parameters
more than twice the Transformer's.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'linformer'
  config.model.num_landmarks = base.by_size(config, 256, mini=16)
  # none, headwise or kv: what the projections along length share.
  config.model.sharing = 'kv'
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
