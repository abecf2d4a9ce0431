"""Conformer (arXiv 2005.08100): self-attention, then a gated convolution.

python run_lra.py --config=configs/conformer.py:listops_mini

The paper's kernel has 32 positions. Here it has 31, which reach equally far to
both sides.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'conformer')
