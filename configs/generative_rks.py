"""Generative-RKS (arXiv 2110.08323): a kernel from a generator, in cosines.

python run_lra.py --config=configs/generative_rks.py:listops_mini

4 Dh frequencies, resampled in each training step, as in the paper's released
code for Dh = 64 and 32. Each gives a cosine and a sine; the constant takes one
frequency. A mini task has at most as many features as tokens. On a CPU so many
features take longer than softmax attention over 4,000 tokens; see
lra/results/speed.md.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'generative_rks')
  config.model.num_features = base.num_features(
      config, 8 * base.head_width(config))
  return config
