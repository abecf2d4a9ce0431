"""GMM-RKS (arXiv 2110.08323) on any task.

Features and redrawing as in the paper's released code for Text (for ListOps it
has four times as many): Dh frequencies, a cosine and a sine of each; one of
them is the constant's.

python run_lra.py --config=configs/gmm_rks.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'gmm_rks'
  head_width = config.model.qkv_width // config.model.num_heads
  config.model.num_features = 2 * head_width
  # the released code has one Gaussian per head
  config.model.num_components = 2
  config.model.redraw = True
  config.model.kernel = 'auto'
  return config
