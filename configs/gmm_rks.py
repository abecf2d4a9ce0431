"""GMM-RKS (arXiv 2110.08323): a Gaussian mixture as kernel, in cosines.

python run_lra.py --config=configs/gmm_rks.py:listops_mini

Reaches 43.2 % (floor 22.3 %).

Dh frequencies, drawn anew for each training step, as in the paper's released
code for Text (for ListOps it has four times as many): a cosine and a sine of
each; one of the frequencies is the constant's. That code has one Gaussian for
each head, here there are two.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'gmm_rks'
  config.model.num_features = base.num_features(
      config, 2 * base.head_width(config))
  config.model.num_components = 2
  config.model.redraw = True
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
