"""Additive attention (arXiv 1409.0473): logits from the tanh of query plus key.

python run_lra.py --config=configs/additive.py:listops_mini

Heads and widths are the Transformer's; the paper adds no settings.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'additive')
