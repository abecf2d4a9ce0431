"""Generative-PRF (arXiv 2110.08323): a kernel from a generator, positive.

python run_lra.py --config=configs/generative_prf.py:listops_mini

4 Dh features, resampled in each training step, as in the paper's released code
for Dh = 64 and 32. A mini task has at most as many features as tokens.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'generative_prf')
  config.model.num_features = base.num_features(
      config, 4 * base.head_width(config))
  return config
