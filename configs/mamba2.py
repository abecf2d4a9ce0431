"""Mamba-2 (arXiv 2405.21060): a state space with input-dependent time steps.

python run_lra.py --config=configs/mamba2.py:listops_mini

The paper has no settings for Long Range Arena.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'mamba2')
