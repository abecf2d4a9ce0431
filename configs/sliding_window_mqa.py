"""Sliding window, multi-query (arXiv 1911.02150): one key-value head.

python run_lra.py --config=configs/sliding_window_mqa.py:listops_mini

The window is that of `configs/sliding_window.py`. With CLS pooling the CLS
token sees only its neighbours; to use the whole sequence add
--config.encoder.pooling=mean.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'sliding_window_mqa')
  config.model.radius = base.by_size(config, 256, mini=32)
  return config
