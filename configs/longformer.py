"""longformer on any task: a window of 512 and a global CLS token.

python run_lra.py --config=configs/longformer.py:text_mini

The window is that of the paper (Beltagy et al. 2020, arXiv 2004.05150, section
3.1 and table 12) and of Long Range Arena's released code, which has no global
token.
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'longformer'
  config.model.window = 64 if config.task.endswith('_mini') else 512
  config.model.num_global = 1
  config.model.qkv_bias = config.protocol != 'lra'
  return config
