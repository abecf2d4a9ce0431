"""Optimised attention (arXiv 2403.01643) on any task.

The paper adds no setting to those of the protocol.

python run_lra.py --config=configs/optimised.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'optimised'
  config.model.kernel = 'auto'
  return config
