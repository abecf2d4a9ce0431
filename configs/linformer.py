"""Linformer (arXiv 2006.04768) on any task.

M = 256 as in the paper; one matrix for keys and values of all heads as in the
Long Range Arena release, whose default is M = 16.

python run_lra.py --config=configs/linformer.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'linformer'
  config.model.num_landmarks = 256
  # none, headwise or kv: what the projections along length share
  config.model.sharing = 'kv'
  config.model.kernel = 'auto'
  return config
