"""simpletron_res on any task, with the settings of arXiv 2111.15588.

python run_lra.py --config=configs/simpletron_res.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'simpletron_res'
  config.model.kernel = 'auto'
  return config
