"""MLP-Mixer (arXiv 2105.01601): a perceptron across positions.

python run_lra.py --config=configs/mlp_mixer.py:listops_mini

256 hidden units, as in the paper's small models, whose images have 49 or 196
positions. The mini tasks have 32.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'mlp_mixer')
  config.model.hidden = base.by_size(config, 256, mini=32)
  return config
