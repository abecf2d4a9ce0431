"""RWKV-7 (arXiv 2503.14456): a generalised delta rule.

python run_lra.py --config=configs/rwkv7.py:listops_mini

The paper has no settings for Long Range Arena.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'rwkv7')
