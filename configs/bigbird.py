"""bigbird on any task: blocks of 64; 3 of window, 2 global, 3 random.

python run_lra.py --config=configs/bigbird.py:text_mini

The sizes are those of the paper's base model (Zaheer et al. 2020, arXiv
2007.14062, appendix E, internal construction) and of Long Range Arena's
released code.
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'bigbird'
  config.model.block_size = 8 if config.task.endswith('_mini') else 64
  config.model.window_blocks = 3
  config.model.global_blocks = 2
  config.model.random_blocks = 3
  config.model.pattern_seed = 0
  config.model.qkv_bias = config.protocol != 'lra'
  return config
