"""Super attention (arXiv 2403.01643): efficient, values mixed along length.

python run_lra.py --config=configs/super.py:listops_mini

Reaches 55.3 % (baseline 22.3 %).

The head is as wide as the encoder, so no field sets the heads. The length is
that of the task.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'super'
  config.model.kernel = 'auto'
  del config.model.num_heads, config.model.qkv_width
  return config
