"""Performer (arXiv 2009.14794): softmax attention from random features.

python run_lra.py --config=configs/performer.py:listops_mini

M = 256 orthogonal positive features, drawn anew for each training step, as in
the paper; on the mini tasks no more than there are tokens. The Long Range Arena
release has such features on ListOps alone, 2 of them. On Text and Retrieval it
takes 256 features relu(w x) instead, which are drawn once and estimate another
kernel than the softmax's.
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'performer'
  config.model.num_features = base.num_features(config, 256)
  config.model.orthogonal = True
  config.model.redraw = True
  config.model.kernel = 'auto'
  return config
