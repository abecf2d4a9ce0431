"""Attention-augmented convolution (arXiv 1904.09925): both side by side.

python run_lra.py --config=configs/aa_conv.py:listops_mini

Attention computes a quarter of the channels. Its queries are twice as wide as
its values, the paper's ratio. The convolution has width 3. The paper's shares
differ by network.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'aa_conv')
