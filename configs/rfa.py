"""Random feature attention (arXiv 2103.02143): cosines and sines of q and k.

python run_lra.py --config=configs/rfa.py:listops_mini

M = 64 frequencies, as in the authors' code, resampled in each training step.
A mini task has at most as many frequencies as tokens. The gated variant is
causal: it also needs --config.encoder.pooling=mean.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'rfa')
  config.model.num_features = base.num_features(config, 64)
  # It has no effect, but it is part of old records.
  config.model.chunk_size = base.by_size(config, 64, mini=16)
  return config
