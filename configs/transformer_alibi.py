"""ALiBi (arXiv 2108.12409): attention that fades with distance.

python run_lra.py --config=configs/transformer_alibi.py:listops_mini

The paper adds no settings.
"""

from lra.configs import base


def get_config(arg=''):
  return base.get_config(arg, 'transformer_alibi')
