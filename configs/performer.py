"""Performer (arXiv 2009.14794): softmax attention from random features.

python run_lra.py --config=configs/performer.py:listops_mini

M = 256 orthogonal positive features, resampled in each training step: the
defaults of the authors' code. A mini task has at most as many features as
tokens. Nystromformer's release asks its library for 256 ReLU features, but does
not select their kernel. So its Performer has exponential features as here, with
queries and keys divided by Dh^(1/4) twice. The Long Range Arena release has
exponential features on ListOps alone, 2 of them. On Text and Retrieval its
features are relu(x) + 0.001 of the queries and keys themselves: they are not
random, and the kernel is not the softmax's.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'performer')
  config.model.num_features = base.num_features(config, 256)
  return config
