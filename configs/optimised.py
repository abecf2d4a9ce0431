"""Optimised attention (arXiv 2403.01643): no projection of values.

python run_lra.py --config=configs/optimised.py:listops_mini

The paper adds no setting to those of the protocol.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'optimised')
