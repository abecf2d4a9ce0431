"""Efficient attention (arXiv 1812.01243): two softmaxes, Q (K^T V).

python run_lra.py --config=configs/shen.py:listops_mini
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'shen')
