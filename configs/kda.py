"""Kimi Delta Attention (arXiv 2510.26692): a decay of each key channel.

python run_lra.py --config=configs/kda.py:listops_mini

The paper has no settings for Long Range Arena.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'kda')
