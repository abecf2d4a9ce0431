"""GMM-RKS (arXiv 2110.08323): a Gaussian mixture as kernel, in cosines.

python run_lra.py --config=configs/gmm_rks.py:listops_mini

Dh frequencies, resampled in each training step, as in the paper's released
code for Text; for ListOps it has four times as many. Each gives a cosine and a
sine; the constant takes one frequency. The released code has one Gaussian per
head, here there are two.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'gmm_rks')
  config.model.num_features = base.num_features(
      config, 2 * base.head_width(config))
  return config
