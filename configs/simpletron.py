"""simpletron on any task, with the settings of its paper (arXiv 2111.15588).

python run_lra.py --config=configs/simpletron.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'simpletron'
  config.model.kernel = 'auto'
  return config
