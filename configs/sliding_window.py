"""Sliding window (arXiv 2004.05150): neighbours on both sides.

python run_lra.py --config=configs/sliding_window.py:listops_mini

256 neighbours on either side, Longformer's window of 512. With CLS pooling the
CLS token sees only its neighbours; to use the whole sequence add
--config.encoder.pooling=mean.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'sliding_window')
  config.model.radius = base.by_size(config, 256, mini=32)
  return config
