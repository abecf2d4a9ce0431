"""Efficient attention (arXiv 2403.01643): one head that projects queries only.

python run_lra.py --config=configs/efficient.py:listops_mini

The head is as wide as the encoder, so no field sets the heads.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'efficient')
