"""Super attention (arXiv 2403.01643) on any task.

One head as wide as the encoder, so there are no head settings; L comes from
the task.

python run_lra.py --config=configs/super.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'super'
  config.model.kernel = 'auto'
  del config.model.num_heads, config.model.qkv_width
  return config
