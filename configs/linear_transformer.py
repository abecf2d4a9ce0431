"""Linear Transformer (arXiv 2006.16236): features elu(x) + 1.

python run_lra.py --config=configs/linear_transformer.py:listops_mini
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'linear_transformer')
