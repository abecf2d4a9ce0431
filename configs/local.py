"""local on any task: blocks of 50, as in Long Range Arena's released code.

python run_lra.py --config=configs/local.py:text_mini

Under CLS pooling the CLS token hears its own block only; to let the whole
sequence be heard add --config.encoder.pooling=mean.
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'local'
  config.model.block_size = 16 if config.task.endswith('_mini') else 50
  config.model.qkv_bias = config.protocol != 'lra'
  return config
