"""Generative-RKS (arXiv 2110.08323) on any task.

Features and redrawing as in the paper's released code (for Dh = 64 and 32):
4 Dh frequencies, a cosine and a sine of each; one of them is the constant's.
So many features take longer than softmax attention over 4,000 tokens on a
CPU: lra/results/speed.md.

python run_lra.py --config=configs/generative_rks.py:listops_mini
"""

from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'generative_rks'
  head_width = config.model.qkv_width // config.model.num_heads
  config.model.num_features = 8 * head_width
  config.model.redraw = True
  config.model.kernel = 'auto'
  return config
