"""Local-p attention (arXiv 1508.04025): each token predicts where to look.

python run_lra.py --config=configs/luong_local.py:listops_mini

10 tokens on either side of the centre, as in the paper (section 4.1).
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'luong_local')
