"""Sliding window (arXiv 2004.05150): neighbours on both sides.

python run_lra.py --config=configs/sliding_window.py:listops_mini

Reaches 53.3 % (floor 22.3 %).

256 neighbours on either side, Longformer's window of 512. Under CLS pooling the
CLS token hears its neighbours only; to let the whole sequence be heard add
--config.encoder.pooling=mean.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'sliding_window'
  config.model.radius = base.by_size(config, 256, mini=32)
  # True turns queries and keys by position, as Mistral does.
  config.model.rotary = False
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
