"""GMM-PRF (arXiv 2110.08323): a Gaussian mixture as kernel, positive.

python run_lra.py --config=configs/gmm_prf.py:listops_mini

4 Dh features, resampled in each training step, as in the paper's released code
for Dh = 64 and 32. A mini task has at most as many features as tokens. The
released code has one Gaussian per head, here there are two.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'gmm_prf')
  config.model.num_features = base.num_features(
      config, 4 * base.head_width(config))
  return config
