"""Performer (arXiv 2009.14794) on any task.

M = 256 orthogonal features, drawn anew for each training step: the paper's
and the default of the Long Range Arena release (whose ListOps config has 2).

python run_lra.py --config=configs/performer.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'performer'
  config.model.num_features = 256
  config.model.orthogonal = True
  config.model.redraw = True
  config.model.kernel = 'auto'
  return config
