"""DeltaProduct (arXiv 2502.10297): several delta steps for each token.

python run_lra.py --config=configs/deltaproduct.py:listops_mini

The paper has models of 1 to 4 steps, and no settings for Long Range Arena.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'deltaproduct')
