"""Generative-RKS (arXiv 2110.08323): a kernel from a generator, in cosines.

python run_lra.py --config=configs/generative_rks.py:listops_mini

Reaches 45.0 % (floor 22.3 %).

4 Dh frequencies, drawn anew for each training step, as in the paper's released
code for Dh = 64 and 32: a cosine and a sine of each; one of the frequencies is
the constant's. On the mini tasks there are no more features than tokens. On a
processor so many features take longer than softmax attention over 4,000 tokens:
lra/results/speed.md.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'generative_rks'
  config.model.num_features = base.num_features(
      config, 8 * base.head_width(config))
  config.model.redraw = True
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
