"""Hydra (arXiv 2407.09941): two shifted state spaces and a diagonal.

python run_lra.py --config=configs/hydra.py:listops_mini

The paper has no settings for Long Range Arena.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'hydra')
