"""Gated DeltaNet (arXiv 2412.06464): a delta rule whose state decays.

python run_lra.py --config=configs/gated_deltanet.py:listops_mini

The paper has no settings for Long Range Arena.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'gated_deltanet')
