"""Local (arXiv 2011.04006): softmax attention within blocks of 50 tokens.

python run_lra.py --config=configs/local.py:listops_mini

Blocks have the size of the Long Range Arena release. With CLS pooling the CLS
token sees only its own block; to use the whole sequence add
--config.encoder.pooling=mean.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'local')
  config.model.block_size = base.by_size(config, 50, mini=16)
  return config
