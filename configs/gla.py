"""GLA (arXiv 2312.06635): linear attention with a gate of each channel.

python run_lra.py --config=configs/gla.py:listops_mini

The paper has no settings for Long Range Arena.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'gla')
